# SPDX-License-Identifier: Apache-2.0
"""Where a state can come from: a run, by its directory or its mirror's address, a checkpoint, or a file."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from truestep.checkpoints.checkpoint import Checkpoint
from truestep.checkpoints.checkpoint_lookup import read_newest_checkpoint
from truestep.checkpoints.weight_mismatches import Differences
from truestep.checkpoints.weights import (
    Source,
    check_weights_file,
    describe_weights_source,
    load_matching_weights,
    read_weights,
    write_weights,
)
from truestep.core.errors import CheckpointError
from truestep.mirror.address import mirror_address_or_none
from truestep.mirror.reading import read_local_or_stored_run


def load_weights(
    module: nn.Module,
    source: Source,
    *,
    checkpoint: str | int | None = None,
    learner: str | None = None,
    averages: bool = False,
    strict: bool = True,
) -> Differences:
    """Load weights into a module: all of them, or, where a name or a shape does not fit, none.

    `source` is a run's directory (its newest sound checkpoint), the address of its mirror ("s3://bucket/runs/x", of which the
    weights alone are fetched), one checkpoint, a safetensors file, a file of torch.save, or a state dict. Of a run, `checkpoint`
    takes another than the newest: a step, a name, or of those kept the "highest accuracy", the "lowest loss", by any metric that
    was logged. `learner` says whose, where a run has several, and `averages=True` takes the moving averages that it kept. What
    DataParallel, DDP or torch.compile put into names does not matter. With `strict=False` what fits is loaded, and what does not
    is returned. Raises CheckpointError with every difference.
    """
    if isinstance(module, str | os.PathLike) or (
        isinstance(module, Mapping) and isinstance(source, nn.Module)
    ):
        raise CheckpointError("The module comes first: write ts.load_weights(module, source).")
    found = _read_local_or_stored_weights(source, checkpoint=checkpoint, learner=learner, averages=averages)
    return load_matching_weights(module, found, describe_weights_source(source), strict=strict)


def export_weights(
    source: Source,
    target: str | os.PathLike[str],
    *,
    checkpoint: str | int | None = None,
    learner: str | None = None,
    averages: bool = False,
) -> Path:
    """Write weights into one plain file that other programs read, and return its path.

    `.safetensors` makes a safetensors file, `.pt` or `.pth` a state dict of torch.save. The file appears
    whole or not at all. Sources, and which checkpoint of a run, are those of `load_weights`.
    """
    path = Path(target)
    check_weights_file(path)
    write_weights(
        _read_local_or_stored_weights(source, checkpoint=checkpoint, learner=learner, averages=averages), path
    )
    return path


def read_checkpoint(source: str | os.PathLike[str]) -> Any:
    """Return the whole state in a run's newest checkpoint, in one checkpoint, or in a file, on the CPU.

    A run is given by its directory or by its mirror's address. A file is one of safetensors (its tensors by name) or of
    torch.save, which is read with `weights_only=True` and can't run code. Raises CheckpointError for what is damaged or would
    have to run code.
    """
    if mirror_address_or_none(source) is None and not Path(source).is_dir():
        from truestep.checkpoints.foreign_file_loading import read_weights_file

        return read_weights_file(Path(source))
    return read_local_or_stored_run(
        source, lambda path, files: read_newest_checkpoint(path, Checkpoint.load, files)[1]
    )


def _read_local_or_stored_weights(source: Source, **which: Any) -> dict[str, Tensor]:
    if not isinstance(source, str | os.PathLike):
        return read_weights(source, **which)
    return read_local_or_stored_run(source, lambda path, files: read_weights(path, **which, files=files))
