# SPDX-License-Identifier: Apache-2.0
"""A stream's own state is tried before it is trusted; where it is not all of it, the stream is read again, and that is said."""

import random
import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.streams import Buffered
from torch.utils.data import IterableDataset

from truestep.core.errors import DataError
from truestep.core.text_formatting import plural
from truestep.engine.data import DataOptions, open_source, stream_reader


def opened(data, **options):
    return open_source(data, DataOptions(**{"batch_size": 4, **options}), seed=0)


def stopped(data, batches, **options):
    source = opened(data, **options)
    reading = source.batches(1)
    given = [next(reading) for _ in range(batches)]
    state, promise = source.state_dict(), source.choices[-1]
    rest = [*reading]
    reading.close()
    source.close()
    return state, promise, given, rest


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@settings(deadline=None, max_examples=8)
@given(
    st.integers(1, 40),
    st.integers(1, 22),
    st.sampled_from([(), ("held",), ("held", "draw")]),
    st.sampled_from([0, 0, 1, 2]),
)
def test_a_stream_goes_on_with_the_same_batches_whatever_its_state_leaves_out(
    buffer, batches, keeps, num_workers
):
    state, promise, given, rest = stopped(Buffered(96, buffer, keeps), batches, num_workers=num_workers)
    assert sorted(torch.cat(given + rest).tolist()) == [*range(96)]
    again = opened(Buffered(96, buffer, keeps), num_workers=num_workers)
    again.load_state_dict(state)
    how = again.how_it_resumes(1, batches)
    assert same([*again.batches(1, batches)], rest)
    assert how == "goes on from its own state" or how.startswith(
        f"re-reading {4 * batches} samples ({plural(batches, 'batch', 'batches')})"
    )
    if keeps == ("held", "draw") and batches >= 6 * max(1, num_workers):
        assert how == "goes on from its own state"
        assert "tried: it gives the batches that were read behind it" in promise.reason
    if (
        buffer > 1
        and "draw" not in keeps
        and 6 * max(1, num_workers) <= batches < 24 - buffer // 4 - 3 * max(1, num_workers)
    ):
        assert "re-reading" in how
        assert "its own state gives other batches: the" in how
        assert "its own state gives other batches" in promise.reason
        assert state["workers"] == [None] * max(1, num_workers)  # what is of no use is not kept
    again.close()


def test_a_state_that_turns_out_to_be_of_another_stream_is_not_gone_on_from():
    state, _, _, _ = stopped(Buffered(96, 8, ("held", "draw")), 12)
    again = opened(Buffered(96, 9, ("held",)))
    again.load_state_dict(state)
    assert "its own state gives other batches" in again.how_it_resumes(1, 12)
    with pytest.raises(DataError, match="it differs from batch 1 on"):
        next(again.batches(1, 12))


class Kept(Buffered):
    """Has something in its state that no checkpoint holds."""

    def __init__(self, kept):
        super().__init__(96, 3, ("held", "draw"))
        self.kept = kept

    def state_dict(self):
        return super().state_dict() | {"kept": self.kept}


@pytest.mark.parametrize("kept", [b"bytes", {1, 2}, np.zeros(3), object()])
def test_a_state_that_no_checkpoint_holds_is_not_kept(kept):
    state, promise, _, rest = stopped(Kept(kept), 12)
    assert state["workers"] == [None]
    assert "no checkpoint can hold its own state" in promise.reason
    again = opened(Kept(kept))
    again.load_state_dict(state)
    assert same([*again.batches(1, 12)], rest)


class Raising(Buffered):
    def load_state_dict(self, state):
        raise IndexError("list index out of range")


def test_a_state_that_its_own_library_does_not_take_back_is_not_used():
    state, promise, _, rest = stopped(Raising(96, 3, ("held", "draw")), 12)
    assert "could not be tried (IndexError: list index out of range)" in promise.reason
    again = opened(Raising(96, 3, ("held", "draw")))
    again.load_state_dict(state)
    assert same([*again.batches(1, 12)], rest)


class Refusing(Buffered):
    def state_dict(self):
        raise NotImplementedError("state_dict is not implemented for this kind of iterable")


def test_a_state_that_can_not_be_had_is_done_without():
    state, promise, _, rest = stopped(Refusing(96, 3), 12)
    assert state["workers"] == [None]
    assert promise.value == "exact, or refused"
    again = opened(Refusing(96, 3))
    again.load_state_dict(state)
    assert same([*again.batches(1, 12)], rest)


def test_nothing_is_started_where_that_would_run_the_users_file_again():
    options = {"start_method": "spawn"}
    state, promise, _, rest = stopped(Buffered(96, 3, ("held", "draw")), 12, **options)
    assert "write num_workers=1" in promise.reason
    again = opened(Buffered(96, 3, ("held", "draw")), **options)
    again.load_state_dict(state)
    assert same([*again.batches(1, 12)], rest)


class Large(IterableDataset):
    """Counts how often it is asked for a state that takes a while to copy."""

    def __init__(self, seconds):
        self.seconds, self.asked, self.at, self.starts_at = seconds, 0, 0, 0

    def __iter__(self):
        for at in range(self.starts_at, 4000):
            self.at = at + 1
            yield at

    def state_dict(self):
        self.asked += 1
        time.sleep(self.seconds)
        return {"at": self.at}

    def load_state_dict(self, state):
        self.starts_at = state["at"]


def test_a_state_is_asked_for_as_often_as_a_fiftieth_of_the_time_allows():
    data = Large(0.02)
    begin = time.perf_counter()
    state, _, _, rest = stopped(data, 700)
    spent = time.perf_counter() - begin
    assert data.asked <= 2 + spent / (50 * 0.02)
    again = opened(Large(0.0))
    again.load_state_dict(state)
    assert again.how_it_resumes(1, 700) == "goes on from its own state"
    assert same([*again.batches(1, 700)], rest)


class Endless(Buffered):
    """Begins again when it is through."""

    read = 0

    def part(self):
        return range(10**9)

    def __iter__(self):
        for sample in super().__iter__():
            self.read += 1
            yield sample


def test_an_endless_stream_goes_on_from_its_state_and_reads_little_again(monkeypatch):
    monkeypatch.setattr(stream_reader, "SHARE_OF_TIME", 1e9)  # as where reading takes longer than asking
    source = opened(Endless(1, 5, ("held", "draw")))
    reading = source.batches(0)
    assert len([next(reading) for _ in range(1000)]) == 1000
    state = source.state_dict()
    rest = [next(reading) for _ in range(5)]
    data = Endless(1, 5, ("held", "draw"))
    again = opened(data)
    again.load_state_dict(state)
    resumed = again.batches(0, 1000)
    assert same([next(resumed) for _ in range(5)], rest)
    assert data.read <= 4 * (6 + 5)


class WithArguments(Buffered):
    """A state that its library's loader asks for with arguments, as Streaming's and litdata's do."""

    def state_dict(self, num_samples, from_beginning):
        raise AssertionError("called by somebody who does not know what to give it")


def test_a_state_that_takes_arguments_is_left_to_its_librarys_loader():
    state, promise, _, rest = stopped(WithArguments(96, 5), 12)
    assert state["workers"] == [None]
    assert promise.value == "exact, or refused"
    again = opened(WithArguments(96, 5))
    again.load_state_dict(state)
    assert again.how_it_resumes(1, 12).startswith("re-reading 48 samples")
    assert same([*again.batches(1, 12)], rest)


def test_the_callers_random_state_is_not_touched_by_a_trial():
    random.seed(0)
    before = random.getstate(), torch.get_rng_state()
    stopped(Buffered(96, 5), 12)
    assert random.getstate() == before[0]
    assert torch.equal(torch.get_rng_state(), before[1])


class OfTheNewest(IterableDataset):
    """Tells the state of its newest iterator, as `datasets` does: an evaluation of the same stream makes another one."""

    starts_at = 0

    def __iter__(self):
        start, self.starts_at = self.starts_at, 0
        self.state = state = {"at": start}
        for number in range(start, 200):
            state["at"] = number + 1
            yield number

    def state_dict(self):
        return self.state

    def load_state_dict(self, state):
        self.starts_at = state["at"]


@pytest.mark.sliced(3)
@pytest.mark.parametrize("behind", [1, 2, 3, 5, 8, 11])
def test_a_state_of_another_reading_of_the_same_stream_is_found_out(behind):
    source = opened(OfTheNewest())
    reading = source.batches(0)
    for _ in range(10):
        next(reading)
    assert len([*source.made_for_evaluation()]) == 50
    for _ in range(behind):
        next(reading)
    state, rest = source.state_dict(), [*reading]
    again = opened(OfTheNewest())
    again.load_state_dict(state)
    how = again.how_it_resumes(0, 10 + behind)
    assert "goes on from" in how or "its own state gives" in how
    assert same([*again.batches(0, 10 + behind)], rest)
