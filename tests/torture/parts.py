# SPDX-License-Identifier: Apache-2.0
"""A checkpoint that several processes write, without the processes: the parts of the others are written in this one."""

from pathlib import Path

import torch

from truestep.checkpoints import CheckpointStore
from truestep.checkpoints.file_operations import CheckpointFiles
from truestep.checkpoints.part_writer import CheckpointPartWriter
from truestep.checkpoints.state_codec import SavedTensorPiece
from truestep.core.errors import CheckpointError


def piece(tensor: torch.Tensor, *box: slice) -> SavedTensorPiece:
    return SavedTensorPiece(
        tensor=tensor[box].clone(),
        whole=tuple(tensor.shape),
        offset=tuple(part.start for part in box),
    )


def let_write(store: CheckpointStore, others: list[dict], files: CheckpointFiles | None = None) -> None:
    """Have the parts of the others written in this process."""

    def write(folder: Path) -> list[int]:
        said: list[str | None] = []
        for rank, state in enumerate(others, 1):
            writer = CheckpointPartWriter(
                rank, tell=lambda _, why: said.append(why), background=False, files=files
            )
            writer.save(folder, state)
            writer.close()
        if any(said):
            raise CheckpointError(f"a part could not be written: {said}")
        return list(range(1, len(others) + 1))

    store.others = lambda folder: lambda: write(folder)
