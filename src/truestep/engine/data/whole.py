# SPDX-License-Identifier: Apache-2.0
"""Data sets that count one rank's part of themselves, taken as the whole that they are."""

from typing import Any

from torch.utils.data import Dataset, IterableDataset

from truestep.engine.data.block_forms import shard_sizes


class WholeDataset(Dataset[Any]):
    """The samples of all ranks, by number: MosaicML Streaming and litdata give any, and count only those of one rank."""

    def __init__(self, counted: Any, sizes: list[int]) -> None:
        self.counted, self._sizes = counted, sizes

    def __len__(self) -> int:
        return sum(self._sizes)

    def __getitem__(self, number: int) -> Any:
        return self.counted[number]

    def block_sizes(self) -> list[int]:
        """Return how many samples lie in each shard."""
        return self._sizes


def whole_of_ranks(data: Any) -> Any:
    """Return the data of all ranks where a data set counts only one's, and its shards say how many there are."""
    if not isinstance(data, IterableDataset) or (told := shard_sizes(data)) is None:
        return data
    sizes = [int(size) for size in told]
    return WholeDataset(data, sizes) if sum(sizes) > len(data) else data  # type: ignore[arg-type]


def given_dataset(data: Any) -> Any:
    """Return what was given, where the whole of it stands for it."""
    return data.counted if isinstance(data, WholeDataset) else data
