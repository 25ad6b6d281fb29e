# SPDX-License-Identifier: Apache-2.0
"""What two ranks were given is compared when it is opened and at its first batches: what differs is named, with what to write."""

import threading
from itertools import islice

import pytest
import torch
from torch.utils.data import Dataset, IterableDataset

import truestep as ts
from truestep.core.errors import DataError
from truestep.engine.data import DataOptions, open_source
from truestep.engine.data.rank_data_check import (
    ReadPlace,
    json_digest_number,
    refuse_other_data,
    refuse_other_reading,
)
from truestep.engine.processes.batch_row_shares import RankShare

X = torch.randn(48, 3, generator=torch.Generator().manual_seed(0))


class Ranks:
    """Two ranks as two threads, who give one another what they have."""

    def __init__(self):
        self.barrier = threading.Barrier(2, timeout=60)
        self.given = [None, None]

    def run(self, function):
        """Return what the function of a rank and its world returns or raises on each."""
        found = [None, None]

        def rank(number):
            try:
                found[number] = function(number, OneOf(self, number))
            except DataError as error:
                found[number] = error

        threads = [threading.Thread(target=rank, args=(number,)) for number in range(2)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        return found


class OneOf:
    size = 2

    def __init__(self, ranks, rank):
        self.ranks, self.rank = ranks, rank

    def share_bytes(self, mine, what):
        self.ranks.given[self.rank] = mine
        self.ranks.barrier.wait()
        found = [*self.ranks.given]
        self.ranks.barrier.wait()
        return found

    def meet(self, what, *numbers):
        return self.share_bytes([*map(float, numbers)], what)


class Rows(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, number):
        return self.rows[number]


class Stream(IterableDataset):
    def __init__(self, rows):
        self.rows = rows

    def __iter__(self):
        yield from self.rows


WEIGHTS = [{"a": 0.7, "b": 0.3}, {"a": 0.3, "b": 0.7}]


def mixed(kind, weights, first=X, names=("a", "b"), **options):
    data = {"a": kind(first), "b": kind(X + 10)}
    return ts.Mixture({name: data[name] for name in names}, weights=weights, **options)


def of_types(rows):
    return [(row, torch.tensor(number)) for number, row in enumerate(rows)]


GIVEN = {
    "weights": (
        lambda kind, rank: mixed(kind, WEIGHTS[rank]),
        "weights is {'a': 0.7, 'b': 0.3} on rank 0 and {'a': 0.3, 'b': 0.7} on rank 1",
        "the same weights",
    ),
    "a schedule on one": (
        lambda kind, rank: mixed(kind, (lambda batch: WEIGHTS[0]) if rank else WEIGHTS[0]),
        "weights is {'a': 0.7, 'b': 0.3} on rank 0 and a function of the batch on rank 1",
        "depends on the number of the batch alone",
    ),
    "another order of names": (
        lambda kind, rank: mixed(kind, WEIGHTS[0], names=["ab", "ba"][rank]),
        "the order of its sources is ['a', 'b'] on rank 0 and ['b', 'a'] on rank 1",
        "in the same order",
    ),
    "another end": (
        lambda kind, rank: mixed(kind, WEIGHTS[0], at_end=["again", "stop"][rank]),
        "at_end is again on rank 0 and stop on rank 1",
        "the same at_end",
    ),
    "types": (
        lambda kind, rank: kind(X.double() if rank else X),
        "a sample is ['torch.float32 (3,)'] on rank 0 and ['torch.float64 (3,)'] on rank 1",
        "the same files, transforms",
    ),
    "shapes": (
        lambda kind, rank: kind(X[:, : 3 - rank]),
        "a sample is ['torch.float32 (3,)'] on rank 0 and ['torch.float32 (2,)'] on rank 1",
        "the same files, transforms",
    ),
    "sizes in a mixture": (
        lambda kind, rank: mixed(kind, WEIGHTS[0], X[: 48 - rank]),
        "its source 'a' has 48 samples on rank 0 and 47 on rank 1",
        "Give run.data the whole data",
    ),
}  # fmt: skip


def opened(data, rank, **options):
    return open_source(
        data, DataOptions(batch_size=8, num_workers=0, **options), seed=0, share=RankShare(rank, 2)
    )


def compared_when_opened(made):
    def opens(rank, world):
        facts = {"train": opened(made(rank), rank).facts()}
        return refuse_other_data(
            world, facts, [each for (each,) in world.meet("", json_digest_number(facts))]
        )

    return Ranks().run(opens)


BY_NUMBER = ("types", "shapes", "sizes in a mixture")


@pytest.mark.parametrize("kind", [Rows, Stream])
@pytest.mark.parametrize("what", GIVEN)
def test_what_differs_when_it_is_opened_is_named_before_a_batch_is_read(what, kind):
    made, told, advice = GIVEN[what]
    if what in BY_NUMBER and kind is Stream:
        pytest.skip("a stream is looked at when it is read")
    for error in compared_when_opened(lambda rank: made(kind, rank)):
        assert f"The ranks were given different data as 'train': {told}. " in str(error)
        assert advice in str(error)
    alike = compared_when_opened(lambda rank: made(kind, 0))
    assert alike == [{"train"}, {"train"}]


READ = {
    "a schedule": (lambda kind, rank: mixed(kind, lambda batch: WEIGHTS[rank]), 1),
    "a schedule, later": (lambda kind, rank: mixed(kind, lambda batch: WEIGHTS[rank and batch > 2]), 4),
    "types": (lambda kind, rank: Stream(X.double() if rank else X), 1),
    "shapes": (lambda kind, rank: Stream(X[:, : 3 - rank]), 1),
    "types of columns": (lambda kind, rank: Stream(of_types(X.double() if rank else X)), 1),
    "types in a mixture": (lambda kind, rank: mixed(Stream, WEIGHTS[0], X.double() if rank else X), 1),
}
TOLD = {
    "types": "its batches are float32 (rows, 3) on rank 0 and float64 (rows, 3) on rank 1",
    "shapes": "its batches are float32 (rows, 3) on rank 0 and float32 (rows, 2) on rank 1",
    "types of columns": "its batches are (float32 (rows, 3), int64 (rows)) on rank 0 and (float64 (rows, 3), int64 (rows)) on",
}


def compared_when_read(made):
    """Return at which batch the ranks find that they read other data, and what they are told."""

    def reads(rank, world):
        source = opened(made(rank), rank)
        is_mixed = source.fingerprint()["kind"] == "mixture"
        for number, each in enumerate(islice(source.made(0), 6), 1):
            if number & (number - 1) == 0:
                place = ReadPlace(0, number, each.read, source.form(), is_mixed)
                try:
                    refuse_other_reading(world, number, {"train": place})
                except DataError as error:
                    return number, str(error)
        return None

    return Ranks().run(reads)


@pytest.mark.parametrize("kind", [Rows, Stream])
@pytest.mark.parametrize("what", READ)
def test_what_differs_when_it_is_read_is_named_at_the_next_comparison(what, kind):
    made, at = READ[what]
    for number, said in compared_when_read(lambda rank: made(kind, rank)):
        assert number == at
        assert TOLD.get(what, "The ranks read different data from 'train': ") in said
        if "schedule" in what:
            assert "the number of the batch alone" in said
            assert "per_rank" not in said
    assert compared_when_read(lambda rank: made(kind, 0)) == [None, None]


SHARES = {
    "types": (lambda rank, rows: rows.double() if rank else rows, "2-d float32", "2-d float64"),
    "columns": (
        lambda rank, rows: [(row, torch.tensor(1, dtype=[torch.int32, torch.int64][rank])) for row in rows],
        "(2-d float32, 1-d int32)",
        "(2-d float32, 1-d int64)",
    ),
    "keys": (
        lambda rank, rows: [{"x": row, **({"y": row} if rank else {})} for row in rows],
        "{'x': 2-d float32}",
        "{'x': 2-d float32, 'y': 2-d float32}",
    ),
    "dimensions": (lambda rank, rows: rows[:, None] if rank else rows, "2-d float32", "3-d float32"),
}


def shares_read(made):
    def reads(rank, world):
        options = DataOptions(batch_size=8, per_rank=True)
        source = open_source(
            Stream(made(rank, X[rank::2])), options, seed=0, share=RankShare(rank, 2), world=world
        )
        return len([*source.batches(0)])

    return Ranks().run(reads)


@pytest.mark.parametrize("what", SHARES)
def test_shares_of_other_types_are_refused_before_a_batch(what):
    made, first, second = SHARES[what]
    told = f"the batches of rank 0 are {first}, and those of rank 1 are {second}."
    for error in shares_read(made):
        assert told in str(error)
        assert "the same files, transforms" in str(error)
    assert shares_read(lambda rank, rows: made(0, rows)) == [6, 6]
    # sentences are as long as they are
    assert shares_read(lambda rank, rows: rows[:, : 3 - rank]) == [6, 6]


def test_a_rank_without_a_share_has_no_types_to_compare():
    assert shares_read(lambda rank, rows: rows[:0] if rank else rows) == [6, 6]
