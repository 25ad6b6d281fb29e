# SPDX-License-Identifier: Apache-2.0
"""Streams: split among workers without duplicates, resumed from their own state or by reading again."""

import random
import time

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from truestep.core.errors import DataError
from truestep.engine.data import DataOptions, open_source, sample_rng


class Numbers(IterableDataset):
    """Shuffles when it starts, takes a worker's part (worker 1 ends early), and draws for every sample."""

    def __init__(self, size=37):
        self.size = size
        self.rng = np.random.default_rng()

    def part(self):
        order = random.sample(range(self.size), self.size)
        info = get_worker_info()
        number, count = (info.id, info.num_workers) if info else (0, 1)
        return order[number::count][: 5 if number == 1 else None]

    def __iter__(self):
        for index in self.part():
            yield index, random.random(), self.rng.random(), torch.rand(()), sample_rng().random()


class Stateful(Numbers):
    """Keeps its state in the data set, as Hugging Face's do."""

    def __init__(self):
        super().__init__()
        self.rest = None

    def __iter__(self):
        self.rest = self.part() if self.rest is None else self.rest
        while self.rest:
            yield self.rest.pop(0), torch.rand(())
        self.rest = None

    def state_dict(self):
        return {"rest": self.rest}

    def load_state_dict(self, state):
        self.rest = list(state["rest"])


class StatefulIterator:
    """Keeps its state in the iterator, as torchdata's do."""

    def __init__(self):
        self.next = 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.next == 21:
            raise StopIteration
        self.next += 1
        return self.next - 1, np.random.rand()

    def state_dict(self):
        return {"next": self.next}

    def load_state_dict(self, state):
        self.next = state["next"]


class FromIterator:
    def __iter__(self):
        return StatefulIterator()


def opened(data, **options):
    return open_source(data, DataOptions(**{"batch_size": 4, **options}), seed=0)


def read(batches):
    """Yield copies: a tensor that a worker sent is an open file while it lives, and few may be open."""
    return ([each.clone() for each in batch] for batch in batches)


def same(one, other):
    return all(torch.equal(a, b) for x, y in zip(one, other, strict=True) for a, b in zip(x, y, strict=True))


@pytest.mark.sliced(4)
@pytest.mark.parametrize("num_workers", [0, 1, 3])
@pytest.mark.parametrize("kind", [Numbers, Stateful, FromIterator])
def test_a_stream_goes_on_from_any_batch(kind, num_workers):
    if kind is FromIterator and num_workers == 3:
        pytest.skip("does not split itself among workers")
    source, states = opened(kind(), num_workers=num_workers), [{}]
    whole = []
    for batch in read(source.batches(2)):
        whole.append(batch)
        states.append(source.state_dict())
    indices = torch.cat([batch[0] for batch in whole]).tolist()
    assert len(indices) == len(set(indices)) >= 21
    for start, state in [*enumerate(states)][1::3]:
        again = opened(kind(), num_workers=num_workers)
        again.load_state_dict(state)
        assert same(whole[start:], list(read(again.batches(2, start))))


def test_a_state_is_used_and_few_batches_are_read_twice():
    class Counting(Stateful):
        read = 0

        def __iter__(self):
            for sample in super().__iter__():
                Counting.read += 1
                yield sample

    source = opened(Counting())
    batches = source.batches(0)
    for _ in range(6):
        next(batches)
    state = source.state_dict()
    assert {key: state[key] for key in ("epoch", "batches", "turn")} == {"epoch": 0, "batches": 6, "turn": 0}
    batches.close()
    Counting.read = 0
    again = opened(Counting())
    again.load_state_dict(state)
    assert again.how_it_resumes(0, 6) == "goes on from its own state"
    assert sum(len(batch[0]) for batch in again.batches(0, 6)) == 37 - 24
    assert Counting.read == 37 - 24 + 3 * 4


def test_a_state_taken_elsewhere_is_not_used():
    source = opened(Stateful())
    whole = list(source.batches(0))
    state = source.state_dict()
    again = opened(Stateful())
    again.load_state_dict(state)
    assert same(whole[3:], list(read(again.batches(0, 3))))


def test_a_state_of_other_workers_is_refused():
    source = opened(Stateful(), num_workers=2)
    list(source.batches(0))
    with pytest.raises(DataError, match="saved with 2 readers and now has 1"):
        opened(Stateful()).load_state_dict(source.state_dict())
    with pytest.raises(DataError, match="keeps none"):
        opened(torch.arange(3)).load_state_dict(source.state_dict())


def test_a_stream_without_a_state_is_read_again_and_says_so():
    source = opened(Numbers())
    next(source.batches(0))
    again = opened(Numbers())
    again.load_state_dict(source.state_dict())
    assert "re-reading 4 samples (1 batch)" in again.how_it_resumes(0, 1)
    assert None is source.num_batches
    with pytest.raises(TypeError, match="not known"):
        len(source)
    assert "exact, or refused" in {choice.value for choice in source.choices}


def test_epochs_differ_and_the_callers_generators_are_put_back():
    random.seed(0)
    before = random.getstate()
    source = opened(Numbers())
    one, other = list(source.batches(0)), list(source.batches(1))
    assert before == random.getstate()
    assert one[0][0].tolist() != other[0][0].tolist()
    draws = torch.cat([torch.stack([part.double() for part in batch[1:]]) for batch in one + other], dim=1)
    assert draws.numel() == draws.unique().numel()


def test_workers_that_read_the_same_are_reported():
    class Everything(IterableDataset):
        def __iter__(self):
            yield from range(10)

    with pytest.warns(UserWarning, match="workers 0 and 1 began with the same sample"):
        list(opened(Everything(), num_workers=2).batches(0))


def test_functions_and_iterables_of_all_kinds():
    expected = [[0, 1, 2, 3], [4, 5]]
    forms = [
        lambda: range(6),
        lambda: (i for i in range(6)),
        (lambda epoch: range(6 * epoch, 6 * epoch + 6)),
        dict.fromkeys(range(6)).keys(),
        iter(range(6)),
    ]
    assert [expected] * 5 == [[batch.tolist() for batch in opened(form).batches(0)] for form in forms]
    assert [b.tolist() for b in opened(forms[2]).batches(1)] == [[6, 7, 8, 9], [10, 11]]
    assert expected[:1] == [batch.tolist() for batch in opened(forms[0], drop_last=True).batches(0)]
    ready = opened(lambda: iter([torch.zeros(3), torch.ones(2)]), batch_size=None)
    assert [len(batch) for batch in ready.batches(0)] == [3, 2]


def test_set_epoch_is_called():
    class Epochs(IterableDataset):
        def set_epoch(self, epoch):
            self.epoch = epoch

        def __iter__(self):
            yield self.epoch

    assert [batch.tolist() for batch in opened(Epochs()).batches(7)] == [[7]]


def test_what_can_be_read_once_is_read_once():
    source = opened(i for i in range(6))
    list(source.batches(0))
    with pytest.raises(DataError, match="read only once"):
        next(source.batches(1))
    with pytest.raises(DataError, match="can't be split among num_workers=2"):
        opened((i for i in range(6)), num_workers=2)


def test_an_error_in_a_stream_names_the_sample():
    def failing():
        yield from range(5)
        raise ValueError("broken shard")

    with pytest.raises(ValueError, match="broken shard") as caught:
        list(opened(failing).batches(0))
    assert "while sample 5 of the stream was read" in caught.value.__notes__[0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"shuffle": True}, "shuffle= needs samples that can be asked for by number"),
        ({"weights": [1.0]}, "weights= needs"),
        ({"by_length": [1.0]}, "by_length= needs"),
        ({"batch_size": None, "drop_last": True}, "the items of a stream are the batches"),
    ],
)
def test_what_a_stream_can_not_do_is_refused(options, words):
    with pytest.raises(DataError) as caught:
        opened(Numbers(), **options)
    assert words in str(caught.value)


def test_a_loader_of_a_stream_is_taken_apart():
    source = open_source(DataLoader(Numbers(), batch_size=5), seed=0)
    assert len(next(source.batches(0))[0]) == 5


class InSharedMemory(torch.utils.data.IterableDataset):
    """Keeps its epoch as `datasets` does: in memory that its workers share, and to which the difference is added."""

    def __init__(self):
        self.epoch = torch.zeros(1, dtype=torch.long).share_memory_()

    def set_epoch(self, epoch):
        difference = epoch - self.epoch.clone()
        time.sleep(0.2)
        self.epoch += difference

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        number, count = (info.id, info.num_workers) if info else (0, 1)
        yield from (100 * int(self.epoch) + each for each in range(20)[number::count])


def test_workers_do_not_tell_a_stream_its_epoch_all_at_once():
    source = open_source(InSharedMemory(), DataOptions(batch_size=5, num_workers=2), seed=0)
    for epoch in (0, 1, 2):
        seen = sorted(number for batch in source.batches(epoch) for number in batch.tolist())
        assert seen == [100 * epoch + each for each in range(20)]
    source.close()


@pytest.mark.parametrize(
    ("made", "options"),
    [
        (lambda: iter(()), {}),
        (lambda: iter([1, 2]), {"drop_last": True}),
        (lambda: iter("ab"), {"num_workers": 1, "drop_last": True}),
    ],
)
def test_a_pass_without_a_batch_is_said(made, options):
    source = opened(made, batch_size=4, **options)
    with pytest.warns(UserWarning, match="gave no batch in its pass 3"):
        assert [*source.batches(2)] == []
    source.close()


async def forgotten():
    yield 1


@pytest.mark.parametrize(("made", "what"), [(lambda: None, "NoneType"), (forgotten, "async_generator")])
def test_a_function_that_makes_nothing_to_read_is_refused(made, what):
    with pytest.raises(DataError, match=f"a function that returned an? {what}.*Write it with yield"):
        next(opened(made, batch_size=4).batches(0))
