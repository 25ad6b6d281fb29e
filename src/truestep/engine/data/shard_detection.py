# SPDX-License-Identifier: Apache-2.0
"""How data of different libraries tells which of its samples lie together: its shards, chunks, row groups."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np
from torch.utils.data import ConcatDataset, Dataset, IterableDataset

from truestep.core.errors import DataError

Sizes = Iterable[int] | None


def data_block_sizes(data: Any) -> Sizes:
    """Return how many samples lie together in each of the data's own blocks; None where it does not say so."""
    return _first_known_sizes(
        data,
        (
            _declared_block_sizes,
            _samples_per_shard,
            _litdata_chunk_sizes,
            _concat_sizes,
            _arrow_chunks,
            _parquet_row_group_sizes,
        ),
    )


def shard_sizes(data: Any) -> Sizes:
    """Return the same for what is a data set of shards by its class alone: a shuffle of it is worth a word."""
    return _first_known_sizes(data, (_declared_block_sizes, _samples_per_shard, _litdata_chunk_sizes))


def _first_known_sizes(data: Any, looks: Iterable[Callable[[Any], Sizes]]) -> Sizes:
    return next((found for look in looks if (found := look(data)) is not None), None)


def _declared_block_sizes(data: Any) -> Sizes:
    """Return what a data set's own `block_sizes()` says, or an attribute of that name; numbers one after another as a list."""
    kind = type(data).__name__
    try:
        told = getattr(data, "block_sizes", None)
        told = told() if callable(told) else told
        return [*islice(told, 2 * len(data) + 1000)] if isinstance(told, Iterator) else told
    except Exception as error:
        first = next(iter(str(error).splitlines()), "")
        raise DataError(
            f"block_sizes() of this {kind} could not be asked ({type(error).__name__}: {first}). It is a method without arguments "
            "that returns how many samples each block has, in the order of the data: def block_sizes(self): return [1000, 500]. Or "
            f"give them: shuffle=ts.BlockShuffle(block=[1000, 500]); without blocks, shuffle=True and no such method of {kind}."
        ) from error


def _samples_per_shard(data: Any) -> Sizes:
    return getattr(data, "samples_per_shard", None)  # MosaicML Streaming


def _litdata_chunk_sizes(data: Any) -> Sizes:
    """Return litdata's chunks: of each file that is read, from which sample to which."""
    regions = getattr(data, "region_of_interest", None)
    if regions is None or not hasattr(data, "subsampled_files"):
        return None
    return [end - start for start, end in regions]


def _concat_sizes(data: Any) -> Sizes:
    if not isinstance(data, ConcatDataset):
        return None
    return [int(size) for size in np.diff([0, *data.cumulative_sizes])]


def _arrow_chunks(data: Any) -> Sizes:
    """Return the chunks of Hugging Face's `datasets`, unless an index (of `select` or `shuffle`) stands between."""
    table: Any = getattr(data, "data", None)
    if not hasattr(data, "_indices") or data._indices is not None or not hasattr(table, "column"):
        return None
    return [*map(len, table.column(0).chunks)]


def _parquet_row_group_sizes(data: Any) -> Sizes:
    """Return the row groups of the Parquet files that a data set of the user's holds, where they are all of its samples."""
    held = [[*_rows_per_parquet_group(value)] for value in getattr(data, "__dict__", {}).values()]
    return next((sizes for sizes in held if sizes and sum(sizes) == len(data)), None)


def _rows_per_parquet_group(value: Any) -> Iterator[int]:
    """Yield the rows of each row group of a `ParquetFile`, a list or dict of them, or a data set of pyarrow's."""
    if isinstance(value, (list, tuple, dict)):
        for each in value.values() if isinstance(value, dict) else value:
            if not _is_pyarrow_object(each):  # a list of samples is not gone through
                return
            yield from _rows_per_parquet_group(each)
    elif _is_pyarrow_object(value) and hasattr(value, "get_fragments"):
        for fragment in value.get_fragments():
            yield from _rows_per_metadata_group(getattr(fragment, "metadata", None))
    elif _is_pyarrow_object(value):
        yield from _rows_per_metadata_group(getattr(value, "metadata", None))


def _is_pyarrow_object(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "pyarrow"


def _rows_per_metadata_group(metadata: Any) -> Iterator[int]:
    """Yield the rows of each group that a Parquet file's metadata names; metadata of anything else names none."""
    for number in range(getattr(metadata, "num_row_groups", 0)):
        yield metadata.row_group(number).num_rows


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


def whole_dataset_of_ranks(data: Any) -> Any:
    """Return the data of all ranks where a data set counts only one's, and its shards say how many there are."""
    if not isinstance(data, IterableDataset) or (told := shard_sizes(data)) is None:
        return data
    sizes = [int(size) for size in told]
    return WholeDataset(data, sizes) if sum(sizes) > len(data) else data  # type: ignore[arg-type]


def unwrap_whole_dataset(data: Any) -> Any:
    """Return what was given, where the whole of it stands for it."""
    return data.counted if isinstance(data, WholeDataset) else data
