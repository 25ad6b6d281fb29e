# SPDX-License-Identifier: Apache-2.0
"""That the ranks of a training read the same data: compared when it is first used, at first batches, and at every save."""

import json
import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from truestep.core.errors import DataError

if TYPE_CHECKING:
    from truestep.engine.processes.world import World

Facts = Mapping[str, Any]

_WHY = (
    "Each rank takes its own rows of every batch by itself, so of data that differ by rank most samples would never come, and some "
    "twice."
)
_WHOLE = (
    "Give run.data the whole data on every rank, in one order: no Subset(data, range(rank, ...)), DistributedSampler, shard() or "
    "split by node; a seed for what is drawn, random_split(..., generator=torch.Generator().manual_seed(0)); sorted(...) around "
    "a list of files."
)
_WHOLE_STREAM = (
    "Where each rank is meant to read a share of its own (split_dataset_by_node, split_by_node, files by RANK), write "
    "run.data(stream, ..., per_rank=True). Else let the stream give the same on every rank, with an order that depends on the "
    "epoch alone."
)


class ReadPlace(NamedTuple):
    """How far a stream was read, and a digest of it."""

    epoch: int
    batches: int
    digest: str


def as_number(value: Any) -> float:
    """Return a number that is the same for the same JSON."""
    return float(zlib.crc32(json.dumps(value, sort_keys=True, default=str).encode()))


def refuse_other_data(world: "World", data: Mapping[str, Facts], numbers: Sequence[float]) -> set[str]:
    """Raise a DataError where the ranks, whose facts have these numbers, know other data by one name; return the names of all.

    Data that a rank does not have is nobody's mistake: one may look at some for itself.
    """
    if len(set(numbers)) == 1:
        return set(data)
    mine = json.dumps(data, default=str).encode()
    everybody = [json.loads(each) for each in world.share_bytes(mine, "the data of the ranks")]
    first = everybody[0]
    for rank, other in enumerate(everybody):
        for name in first.keys() & other.keys():
            if how := _difference(first[name], other[name], rank):
                raise DataError(f"The ranks were given different data as {name!r}: {how}. {_WHY} {_WHOLE}")
    return set.intersection(*(set(each) for each in everybody))


def _difference(one: Facts, other: Facts, rank: int) -> str | None:
    for key in ("kind", "num_samples", *sorted(one.keys() | other.keys())):
        first, second = one.get(key), other.get(key)
        if first == second:
            continue
        if key in _HIDDEN:
            return f"{_HIDDEN[key]} on rank {rank} are not those on rank 0"
        if isinstance(first, dict) and isinstance(second, dict):
            return _difference(first, second, rank)
        return f"{key} is {first} on rank 0 and {second} on rank {rank}"
    return None


_HIDDEN = {
    "content": "its samples",
    "spread": "its samples",
    "indices": "the samples that it is a Subset of",
    "weights": "its weights",
    "lengths": "its lengths",
}


def refuse_other_reading(world: "World", batches: int, read: Mapping[str, ReadPlace]) -> None:
    """Raise a DataError where the ranks have read other samples from their streams, on all ranks."""
    numbers = [number for (number,) in world.meet(f"what was read behind batch {batches}", as_number(read))]
    if len(set(numbers)) > 1:
        mine = json.dumps(read).encode()
        everybody = [json.loads(each) for each in world.share_bytes(mine, "what was read of the data")]
        refuse_differing_places(everybody)


def refuse_differing_places(everybody: Sequence[Mapping[str, Sequence[Any]]]) -> None:
    """Raise a DataError where two ranks stand at the same place of a stream and have read other samples."""
    first = everybody[0]
    for rank, other in enumerate(everybody):
        for name in first.keys() & other.keys():
            one, another = ReadPlace(*first[name]), ReadPlace(*other[name])
            if one[:2] == another[:2] and one.digest != another.digest:
                raise DataError(
                    f"The ranks read different data from {name!r}: among its first {one.batches:,} batches there is one that holds "
                    f"other samples on rank {rank} than on rank 0. {_WHY} {_WHOLE_STREAM}"
                )
