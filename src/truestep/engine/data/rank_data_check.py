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
_WHOLE_MIXTURE = (
    "Give ts.Mixture the same sources in the same order, the same weights and the same at_end on every rank. A function of weights "
    "depends on the number of the batch alone: not on the rank, the clock or what one rank has measured. A stream in it gives the "
    "same on every rank."
)
_ALIKE = "Let every rank make its samples in one way: the same files, transforms, collate= and dtypes."


class ReadPlace(NamedTuple):
    """How far a stream was read, and a digest of it."""

    epoch: int
    batches: int
    digest: str
    form: str = ""
    """Types and shapes of its first batch."""
    is_mixed: bool = False


def json_digest_number(value: Any) -> float:
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
            if how := _data_difference(first[name], other[name], rank):
                raise DataError(f"The ranks were given different data as {name!r}: {how}")
    return set.intersection(*(set(each) for each in everybody))


def _data_difference(one: Facts, other: Facts, rank: int) -> str | None:
    """Return how two descriptions of data differ, what comes of that, and what to write."""
    both = {"mixture"} == {one.get("kind"), other.get("kind")}
    for key in (*_FIRST, *sorted(one.keys() | other.keys())):
        first, second = one.get(key), other.get(key)
        if first == second:
            continue
        if key == "sources" and isinstance(first, dict) and isinstance(second, dict):
            return _mixture_difference(first, second, rank)
        if isinstance(first, dict) and isinstance(second, dict) and key != "weights":
            return _data_difference(first, second, rank)
        advice = _ALIKE if key == "sample" else _WHOLE_MIXTURE if both else _WHOLE
        if key in _HIDDEN and not (both and key in _OF_MIXTURE):
            return f"{_HIDDEN[key]} on rank {rank} are not those on rank 0. {_WHY} {advice}"
        return f"{_CALLED.get(key, key)} is {first} on rank 0 and {second} on rank {rank}. {_WHY} {advice}"
    return None


def _mixture_difference(one: Facts, other: Facts, rank: int) -> str | None:
    """Return how the sources of two mixtures of the same names differ: known by their sizes, or by facts of each."""
    for name in one:
        first, second = one[name], other[name]
        if first == second:
            continue
        if isinstance(first, dict) and isinstance(second, dict):
            return f"of its source {name!r} {_data_difference(first, second, rank)}"
        return (
            f"its source {name!r} has {first} samples on rank 0 and {second} on rank {rank}. {_WHY} {_WHOLE}"
        )
    return None


_OF_MIXTURE = ("names", "weights", "at_end")
_FIRST = ("kind", *_OF_MIXTURE, "sources", "num_samples", "sample")  # what tells most
_CALLED = {"names": "the order of its sources", "sample": "a sample"}
_HIDDEN = {
    "content": "its samples",
    "spread": "its samples",
    "indices": "the samples that it is a Subset of",
    "weights": "its weights",
    "lengths": "its lengths",
}


def refuse_other_reading(world: "World", batches: int, read: Mapping[str, ReadPlace]) -> None:
    """Raise a DataError where the ranks have read other samples from their streams, on all ranks."""
    places = {name: place[:3] for name, place in read.items()}
    numbers = [
        number
        for (number,) in world.meet(f"what was read behind batch {batches}", json_digest_number(places))
    ]
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
                    f"The ranks read different data from {name!r}: {_reading_difference(one, another, rank)}"
                )


def _reading_difference(one: ReadPlace, other: ReadPlace, rank: int) -> str:
    if one.form != other.form:
        return f"its batches are {one.form} on rank 0 and {other.form} on rank {rank}. {_WHY} {_ALIKE}"
    among = "its first batch" if one.batches == 1 else f"one of its first {one.batches:,} batches"
    advice = _WHOLE_MIXTURE if one.is_mixed else _WHOLE_STREAM
    return f"{among} holds other samples on rank {rank} than on rank 0. {_WHY} {advice}"


def refuse_other_rows(what: str, numbers: Sequence[int]) -> None:
    """Raise a DataError where the batch that the loop was given had another number of examples on one rank."""
    if len(set(numbers)) > 1:
        rank = next(rank for rank, number in enumerate(numbers) if number != numbers[0])
        raise DataError(
            f"The ranks read different data: the batch of {what} was read with {numbers[0]:,} examples on rank 0 and with "
            f"{numbers[rank]:,} on rank {rank}. {_WHY} {_WHOLE_STREAM}"
        )


def refuse_other_forms(world: "World", form: str, numbers: Sequence[float]) -> None:
    """Raise a DataError where ranks that read shares of a stream make batches of other types; -1 is the number of none."""
    if len({each for each in numbers if each >= 0}) < 2:
        return
    forms = [
        each.decode() for each in world.share_bytes(form.encode(), "what the batches of the ranks look like")
    ]
    first = next(rank for rank, each in enumerate(forms) if each)
    rank = next(rank for rank, each in enumerate(forms) if each and each != forms[first])
    raise DataError(
        f"The ranks read shares of other types: the batches of rank {first} are {forms[first]}, and those of rank {rank} are "
        f"{forms[rank]}. An update that they make together would mix them. {_ALIKE}"
    )
