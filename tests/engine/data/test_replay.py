# SPDX-License-Identifier: Apache-2.0
"""A stream that is read again is compared with what was read before; another one is refused before a sample is lost."""

import random
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.utils.rnn import pack_sequence

from truestep.core.errors import DataError
from truestep.engine.data import DataOptions, open_source
from truestep.engine.data.batch_digest import ReadRecord, digest_batch


class Pair(NamedTuple):
    image: torch.Tensor
    label: torch.Tensor


def record(digests):
    made = ReadRecord()
    for each in digests:
        made.add(each, 2)
    return ReadRecord(made.state_dict())  # as a checkpoint keeps it


@settings(deadline=None)
@given(st.integers(1, 900), st.data())
def test_a_difference_lies_between_the_two_marks_that_are_named(size, data):
    whole = [f"{number}" for number in range(size)]
    before = record(whole)
    assert before.samples == 2 * size
    assert len(before.state_dict()["at"]) <= ReadRecord.MOST + ReadRecord.LAST
    assert before.differing_batch_range(record(whole)) is None
    wrong = data.draw(st.integers(1, size))
    other = record([*whole[: wrong - 1], "other", *whole[wrong:]])
    same, differs = before.differing_batch_range(other)
    assert same < wrong <= differs <= size
    if wrong <= ReadRecord.FIRST or wrong > size - ReadRecord.LAST + 1:
        assert differs == wrong  # the first and the last are known one by one


@given(st.integers(1, 400), st.integers(1, 400))
def test_a_shorter_reading_agrees_wherever_it_ends(one, other):
    whole = [f"{number}" for number in range(max(one, other))]
    assert record(whole[:one]).differing_batch_range(record(whole[:other])) is None
    assert record(whole[:one]).agrees_so_far(record(whole[: min(one, other)]))


BATCHES = {
    "tensor": torch.stack,
    "half": lambda rows: torch.stack(rows).bfloat16(),
    "numbers": lambda rows: torch.stack(rows).long(),
    "channels last": lambda rows: (
        torch.stack(rows).reshape(-1, 5, 4, 50).contiguous(memory_format=torch.channels_last)
    ),
    "array": lambda rows: torch.stack(rows).numpy(),
    "objects": lambda rows: np.array([tuple(row.tolist()) for row in rows], dtype=object),
    "tuple": lambda rows: (torch.stack(rows), torch.stack(rows)[:, 0]),
    "dict": lambda rows: {"x": torch.stack(rows)},
    "named tuple": lambda rows: Pair(torch.stack(rows), torch.zeros(len(rows))),
    "list of rows": list,
    "text": lambda rows: [str(row.tolist()) for row in rows],
    "long text": lambda rows: "".join(str(row.tolist()) for row in rows),
    "bytes": lambda rows: b"".join(row.numpy().tobytes() for row in rows),
    "packed": pack_sequence,
    "row": lambda rows: rows[0],
    "number": lambda rows: float(rows[0][0]),
    "one": lambda rows: rows[0][0],
    "complex": lambda rows: torch.complex(torch.stack(rows), torch.stack(rows)).conj(),
}


@pytest.mark.parametrize("kind", BATCHES)
def test_every_kind_of_batch_has_a_digest_of_what_it_holds(kind):
    rows = [*torch.randn(8, 1000, generator=torch.Generator().manual_seed(0)).mul(1000)]
    make = BATCHES[kind]
    digest = digest_batch(make(rows))
    assert digest == digest_batch(make([row.clone() for row in rows]))
    others = [*reversed(rows)], [row + 1 for row in rows]
    assert all(digest != digest_batch(make(other)) for other in others)


def test_rows_of_any_size_are_each_looked_at():
    for width in (1, 3, 100, 100_000):
        batch = torch.zeros(16, width)
        for row in range(16):
            other = batch.clone()
            other[row] += 1
            assert digest_batch(batch) != digest_batch(other)


def test_a_batch_of_no_rows_has_a_digest():
    assert digest_batch(torch.empty(0, 3)) != digest_batch(torch.empty(0, 4))


class Restarting:
    """Shuffles by a clock from sample `since` on."""

    def __init__(self, since=None):
        self.since = since

    def __iter__(self):
        order = [*range(400)]
        if self.since is not None:
            rest = order[self.since :]
            random.Random(random.SystemRandom().random()).shuffle(rest)
            order[self.since :] = rest
        yield from order


def opened(data, **options):
    return open_source(data, DataOptions(**{"batch_size": 4, **options}), seed=0)


def stopped(data, batches, **options):
    source = opened(data, **options)
    reading = source.batches(0)
    for _ in range(batches):
        next(reading)
    state = source.state_dict()
    reading.close()
    source.close()
    return state


def resumed(data, state, start, **options):
    source = opened(data, **options)
    source.load_state_dict(state)
    return source


@pytest.mark.parametrize("num_workers", [0, 1])
@pytest.mark.parametrize("batches", [1, 9, 60])
def test_another_stream_is_refused_and_the_batch_named(batches, num_workers):
    since = 4 * (batches - 1)
    state = stopped(Restarting(since), batches, num_workers=num_workers)
    source = resumed(Restarting(since), state, batches, num_workers=num_workers)
    with pytest.raises(DataError, match=f"it differs from batch {batches} on") as caught:
        next(source.batches(0, batches))
    for word in (
        f"some of the {4 * batches} samples",
        "set_epoch(epoch)",
        "resume='edited'",
        "resume='anew'",
    ):
        assert word in str(caught.value)
    assert source.state_dict() == state  # what was refused changes nothing of what is saved
    source.close()


def test_a_difference_in_the_middle_is_named_between_two_batches():
    state = stopped(Restarting(150), 99)
    with pytest.raises(DataError, match=r"it differs (between batches \d+ and \d+|from batch \d+ on)"):
        next(resumed(Restarting(150), state, 99).batches(0, 99))


def test_a_stream_that_became_shorter_is_refused():
    state = stopped(lambda: iter(range(40)), 8)
    with pytest.raises(DataError, match="ended after 5 of the 8 batches"):
        next(resumed(lambda: iter(range(20)), state, 8).batches(0, 8))


def test_the_same_stream_goes_on_and_another_one_does_so_where_that_is_asked_for():
    state = stopped(Restarting(), 60)
    rest = [batch.tolist() for batch in resumed(Restarting(), state, 60).batches(0, 60)]
    assert rest == [[*range(at, at + 4)] for at in range(240, 400, 4)]
    source = resumed(Restarting(0), state, 60)
    source.accept_other_data()
    with pytest.warns(UserWarning, match="it differs from batch 1 on. The run goes on"):
        assert len([*source.batches(0, 60)]) == 40


def test_an_evaluation_of_the_same_stream_leaves_the_place_of_the_training():
    source = opened(Restarting())
    reading = source.batches(0)
    [next(reading) for _ in range(5)]
    state = source.state_dict()
    assert len([*source.made_for_evaluation()]) == 100
    assert source.state_dict() == state
    assert next(reading).tolist() == [20, 21, 22, 23]


@pytest.mark.parametrize(("before", "now"), [(2, 0), (0, 2), (1, 3)])
def test_another_number_of_readers_is_refused(before, now):
    state = stopped(Restarting(), 3, num_workers=before) if before < 2 else None
    if state is None:
        with pytest.warns(UserWarning, match="began with the same sample"):
            state = stopped(Restarting(), 3, num_workers=before)
    source = opened(Restarting(), num_workers=now)
    with pytest.raises(DataError, match=f"saved with {max(before, 1)} readers and now has {max(now, 1)}"):
        source.load_state_dict(state)


def test_one_worker_reads_as_none_does():
    state = stopped(Restarting(), 3, num_workers=1)
    assert next(resumed(Restarting(), state, 3).batches(0, 3)).tolist() == [12, 13, 14, 15]
