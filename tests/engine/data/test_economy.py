# SPDX-License-Identifier: Apache-2.0
"""A generator that is left alone is not set, and the first sample that draws from it still gets its own numbers."""

import random

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

from truestep.engine.data import DataOptions, open_source
from truestep.engine.data.generators import (
    GlobalSampleGenerator,
    global_sample_generators,
    sample_generator_of,
)


class Late(Dataset):
    """Samples draw from nothing, but for a few that `draw`."""

    def __init__(self, draw, late=(17, 40)):
        self.draw, self.late, self.own, self.loaded = draw, late, np.random.RandomState(3), []

    def __len__(self):
        return 48

    def __getitem__(self, index):
        self.loaded.append(index)
        return float(self.draw(self)) if index in self.late else -1.0


def forked(_):
    with torch.random.fork_rng(devices=[]):
        return torch.rand(()).item()


def failing_by_chance(_):
    if random.random() < 2:
        raise LookupError(random.random().hex())


DRAWS = {
    "random": lambda _: random.random(),
    "numpy": lambda _: np.random.rand(),
    "torch": lambda _: torch.rand(()).item(),
    "its own": lambda data: data.own.random_sample(),
    "one normal": lambda _: np.random.randn(),
}


def epochs(data, **options):
    options = {"batch_size": 6, "num_workers": 0, **options}
    source = open_source(data, DataOptions(**options), seed=1)
    found = [torch.cat(list(source.batches(epoch))).tolist() for epoch in (0, 1)]
    source.close()
    return found


@pytest.mark.sliced(3)
@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("name", DRAWS)
def test_a_late_draw_gives_the_numbers_that_setting_all_generators_gives(name, num_workers):
    expected = epochs(Late(DRAWS[name]), check=False)
    np.random.seed(5)
    np.random.randn()  # so that numpy keeps a normal, which no sample may get
    assert epochs(Late(DRAWS[name]), num_workers=num_workers) == expected
    assert len({value for epoch in expected for value in epoch}) == 5


def test_only_the_batch_of_the_first_late_draw_is_loaded_again():
    data = Late(DRAWS["torch"])
    source = open_source(data, DataOptions(batch_size=6, num_workers=0), seed=1)
    data.loaded.clear()
    list(source.batches(0))
    assert data.loaded == [*range(18), *range(12, 48)]
    data.loaded.clear()
    list(source.batches(1))
    assert data.loaded == list(range(48))


def test_what_nobody_draws_from_is_not_set(monkeypatch):
    seeded = []
    monkeypatch.setattr(GlobalSampleGenerator, "seed", lambda self, key: seeded.append(key))
    source = open_source(Late(DRAWS["torch"]), DataOptions(batch_size=6, num_workers=0), seed=1)
    seeded.clear()
    for epoch in (0, 1):
        list(source.batches(epoch))
    assert len(seeded) == 6  # the batch that was loaded again


def test_a_generator_that_samples_put_back_themselves_is_noticed():
    data = Late(forked, late=range(48))
    expected = epochs(Late(forked, late=range(48)), check=False)
    assert epochs(data) == epochs(data, num_workers=2) == expected
    assert len(set(expected[0])) == 48


def test_an_error_is_that_of_the_sample_s_own_draws():
    def text(**options):
        source = open_source(Late(failing_by_chance), DataOptions(batch_size=6, **options), seed=1)
        with pytest.raises(LookupError) as error:
            list(source.batches(0))
        source.close()
        assert "sample 17 (at position 17 of epoch 0)" in error.value.__notes__[0]
        return error.value.args[0]

    assert text(num_workers=0) == text(num_workers=0, check=False)


def test_a_late_draw_of_the_collating_function_is_its_own_too():
    def collate(samples):
        return [torch.rand(()).item() if 17.0 in samples else 0.0, samples.pop(0)]

    def found(**options):
        data = [float(index) for index in range(48)]
        source = open_source(
            Counting(data), DataOptions(batch_size=6, collate=collate, num_workers=0, **options), seed=1
        )
        return list(source.batches(0))

    assert found() == found(check=False)


class Counting(Dataset):
    def __init__(self, data):
        self.data = data

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        return self.data[index]


@pytest.mark.parametrize("draw_before", [0, 1, 2, 3])
@pytest.mark.parametrize("name", DRAWS)
def test_the_callers_generators_go_on_where_they_were(name, draw_before):
    def numbers(load):
        random.seed(1), np.random.seed(2), torch.manual_seed(3)
        data = Late(DRAWS[name])
        source = open_source(data, DataOptions(batch_size=6, num_workers=0), seed=1) if load else None
        found = []
        for _ in range(2):
            found += [random.gauss(0, 1), *np.random.randn(draw_before), torch.randn(()).item()]
            found += [*data.own.randn(draw_before)]
            if source is not None:
                list(source.batches(0))
            found += [random.gauss(0, 1), np.random.randn(), torch.randn(()).item(), data.own.randn()]
        return found

    assert numbers(load=True) == numbers(load=False)


def test_a_kept_normal_of_a_random_state_belongs_to_no_other_sample():
    class Normal(Late):
        def __getitem__(self, index):
            return self.own.randn()

    one, other = epochs(Normal(None)), epochs(Normal(None), batch_size=1)
    assert one == other


STREAMS = {
    "random.Random": lambda: random.Random(1),
    "torch": torch.Generator,
    "RandomState": lambda: np.random.RandomState(1),
    "RandomState over Philox": lambda: np.random.RandomState(np.random.Philox(1)),
    **{
        kind.__name__: lambda kind=kind: np.random.Generator(kind(1))
        for kind in (
            np.random.PCG64,
            np.random.PCG64DXSM,
            np.random.MT19937,
            np.random.Philox,
            np.random.SFC64,
        )
    },
}


def draw_from(generator):
    if isinstance(generator, torch.Generator):
        return torch.rand((), generator=generator).item()
    return generator.random()


@pytest.mark.parametrize("name", STREAMS)
def test_every_stream_can_be_set_looked_at_and_put_back(name):
    generator = STREAMS[name]()
    stream = sample_generator_of(generator)
    stream.seed(11)
    before = stream.state()
    assert not stream.moved_from(before)
    first = [draw_from(generator) for _ in range(3)]
    assert stream.moved_from(before)
    stream.restore(before)
    assert not stream.moved_from(before)
    assert [draw_from(generator) for _ in range(3)] == first
    stream.seed(11)
    assert draw_from(generator) == first[0]
    stream.seed(12)
    assert draw_from(generator) != first[0]


def test_a_mersenne_twister_that_comes_round_to_its_position_has_moved():
    for stream in (
        *global_sample_generators()[:2],
        sample_generator_of(random.Random(1)),
        sample_generator_of(np.random.RandomState(1)),
    ):
        states = [other.state() for other in global_sample_generators()]
        before = stream.state()
        generator = getattr(stream, "_generator", None)
        for _ in range(624 // 2):  # two words each
            generator.random()
        assert stream.moved_from(before)
        for other, state in zip(global_sample_generators(), states, strict=True):
            other.restore(state)


def test_another_bit_generator_in_numpy_s_place_is_followed():
    old = np.random.get_bit_generator()
    try:
        np.random.set_bit_generator(np.random.MT19937(5))
        stream = GlobalSampleGenerator()
        before = stream.state()
        np.random.set_bit_generator(np.random.MT19937(6))
        state = stream.state()
        np.random.rand()
        assert stream.moved_from(state)
        assert stream.moved_from(before)
    finally:
        np.random.set_bit_generator(old)
