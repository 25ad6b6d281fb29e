# SPDX-License-Identifier: Apache-2.0
"""A sample's draws are a function of (seed, epoch, position), whoever loads it and whatever it draws from."""

import functools
import os
import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, Dataset, Subset

import truestep as ts
from truestep.core.errors import DataError
from truestep.engine.data import DataOptions, generators, open_source
from truestep.engine.data.generator_search import find_sample_generators

of_the_module = np.random.default_rng(5)


class Jitter:
    __slots__ = ("rng",)

    def __init__(self):
        self.rng = random.Random(3)

    def __call__(self, value):
        return value + self.rng.random()


class Augmented(Dataset):
    """Draws from every kind of generator there is."""

    shared = np.random.RandomState(4)

    def __init__(self, size=24):
        self.size = size
        self.rng = np.random.default_rng()
        self.transforms = [{"first": torch.Generator()}, Jitter()]
        hidden = np.random.Generator(np.random.Philox(8))
        self.closure = lambda: 2 * hidden.random()
        self.method = np.random.default_rng(7).random
        self.partial = functools.partial(
            np.random.Generator.random, np.random.Generator(np.random.MT19937(1))
        )

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        draws = [
            random.random(),
            np.random.rand(),
            torch.rand(()).item(),
            self.rng.random(),
            torch.rand((), generator=self.transforms[0]["first"]).item(),
            self.transforms[1](0),
            self.closure(),
            self.method(),
            self.partial(),
            self.shared.rand(),
            of_the_module.random(),
            ts.sample_rng().random(),
            ts.sample_rng().random(),
        ]
        return index, torch.tensor(draws, dtype=torch.float64)


def loaded(data, *, epoch=0, start=0, seed=0, **options):
    source = open_source(
        data, DataOptions(**{"batch_size": 5, "shuffle": True, "num_workers": 0, **options}), seed=seed
    )
    batches = list(source.batches(epoch, start))
    source.close()
    return torch.cat([indices for indices, _ in batches]), torch.cat([draws for _, draws in batches])


@pytest.mark.sliced(9)
@pytest.mark.parametrize("num_workers", [0, 1, 4])
@pytest.mark.parametrize("start", [0, 1, 3])
def test_draws_depend_neither_on_the_workers_nor_on_where_the_run_was_resumed(num_workers, start):
    for epoch in (0, 1):
        indices, draws = loaded(Augmented(), epoch=epoch)
        again = loaded(Augmented(), epoch=epoch, start=start, num_workers=num_workers)
        assert torch.equal(indices[start * 5 :], again[0])
        assert torch.equal(draws[start * 5 :], again[1])


def test_draws_do_not_depend_on_the_batch_size():
    assert torch.equal(loaded(Augmented())[1], loaded(Augmented(), batch_size=7)[1])


def test_samples_epochs_seeds_and_generators_all_draw_differently():
    draws = torch.stack([loaded(Augmented(), epoch=e, seed=s)[1] for e in range(3) for s in range(3)])
    assert draws.numel() == draws.unique().numel()
    flat = draws.reshape(-1, draws.shape[-1])
    correlations = torch.corrcoef(flat.T) - torch.eye(flat.shape[1])
    assert correlations.abs().max() < 5 / len(flat) ** 0.5


def test_a_sample_drawn_twice_by_weight_is_augmented_twice():
    _, draws = loaded(Augmented(2), shuffle=False, weights=[1, 0], num_samples=40)
    assert draws.numel() == draws.unique().numel()


def test_the_callers_generators_are_put_back():
    data = Augmented()
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    before = (
        random.getstate(),
        np.random.get_state()[1].tolist(),
        torch.get_rng_state(),
        data.rng.bit_generator.state,
    )
    source = open_source(data, DataOptions(batch_size=5, num_workers=0), seed=0)
    for _ in source.batches(0):
        assert before[0] == random.getstate()
        assert before[1] == np.random.get_state()[1].tolist()
        assert torch.equal(before[2], torch.get_rng_state())
        assert before[3] == data.rng.bit_generator.state


def test_they_are_put_back_also_when_loading_fails():
    class Failing(Augmented):
        def __getitem__(self, index):
            random.random()
            raise RuntimeError("no")

    before = random.getstate()
    with pytest.raises(RuntimeError, match="no"):
        open_source(Failing(), DataOptions(batch_size=5, num_workers=0), seed=0)
    assert before == random.getstate()
    with pytest.raises(DataError, match="no sample is being loaded"):
        ts.sample_rng()


def test_collating_has_a_random_state_of_its_own():
    def mixed(samples):
        return random.random(), np.random.rand(), torch.rand(()).item(), ts.sample_rng().random()

    def draws(**options):
        source = open_source(Augmented(), DataOptions(batch_size=5, collate=mixed, **options), seed=0)
        found = list(source.batches(0))
        source.close()
        return found

    assert draws(num_workers=0) == draws(num_workers=2)
    assert len({value for batch in draws(num_workers=0) for value in batch}) == 4 * 5


def test_generators_are_found_wherever_they_hide():
    found = find_sample_generators(Subset(ConcatDataset([Augmented(), Augmented()]), [0]))
    names = " ".join(found)
    for name in (
        "data.dataset.datasets[0].rng",
        "data.dataset.datasets[1].rng",
        "data.dataset.datasets[0].transforms[0]['first']",
        "data.dataset.datasets[0].transforms[1].rng",
        "data.dataset.datasets[0].closure.hidden",
        "data.dataset.datasets[0].partial.args[0]",
        "data.dataset.datasets[0].method.__self__",
        "Augmented.shared",
        "of_the_module",
    ):
        assert name in names
    assert len(found) == 2 * 6 + 2


JOB = SimpleNamespace(
    shuffled=np.random.default_rng(3), noise={"rng": torch.Generator()}, unused=random.Random(1)
)


class Settings:
    rng = random.Random(2)


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (lambda: JOB.shuffled.permutation(4), ["JOB.shuffled"]),
        (lambda: (JOB.shuffled.random() for _ in range(3)), ["JOB.shuffled"]),
        (lambda: 2 * Settings.rng.random(), ["Settings.rng"]),
        (lambda: [JOB.unused.random(), JOB.shuffled.random()], ["JOB.unused", "JOB.shuffled"]),
        (lambda: (JOB, np.random.random(), torch.rand(1)), []),
        (lambda: len(vars(JOB)), []),
    ],
)
def test_a_generator_in_an_attribute_that_a_function_mentions_is_found(function, names):
    assert list(find_sample_generators(function)) == names


def test_the_global_generators_are_not_found_again():
    class Uses:
        rng, other, third = random._inst, np.random.mtrand._rand, torch.default_generator

    assert find_sample_generators(Uses()) == {}


def test_a_long_list_does_not_make_the_search_long():
    class Files:
        def __init__(self):
            self.cycle = self
            self.names = [object() for _ in range(300_000)]
            self.transform = [[[random.Random()]]]

    assert list(find_sample_generators(Files())) == ["data.transform[0][0][0]"]


def test_what_can_not_be_repeated_is_reported_by_name():
    class Clock(Dataset):
        def __len__(self):
            return 3

        def __getitem__(self, index):
            return {"image": torch.zeros(2), "noise": torch.tensor(list(os.urandom(8)))}

    for num_workers in (0, 1):
        source = open_source(Clock(), DataOptions(batch_size=2, num_workers=num_workers), seed=0)
        (reported,) = [choice for choice in source.choices if choice.value == "not repeatable"]
        assert "sample 0['noise'], sample 1['noise'] came out different" in reported.reason
        assert source.fingerprint()["content"] is None
        source.close()


def test_what_can_be_repeated_is_not_reported():
    source = open_source(Augmented(), DataOptions(batch_size=2, num_workers=0), seed=0)
    assert [choice.value for choice in source.choices if choice.name == "sample randomness"] == ["keyed"]
    assert "data.rng" in source.choices[-1].reason


def test_sample_rng_outside_of_loading_says_what_to_do():
    with pytest.raises(DataError, match="no sample is being loaded in this thread"):
        ts.sample_rng()


@pytest.mark.parametrize("kind", [np.random.PCG64, np.random.PCG64DXSM])
@pytest.mark.parametrize("key", [0, 1, 2**63 - 1, 2**63, 2**64 - 1, 0x0123456789ABCDEF])
def test_bits_that_are_written_directly_are_those_of_the_property(kind, key, monkeypatch):
    quick, slow = np.random.Generator(kind(3)), np.random.Generator(kind(3))
    for generator in (quick, slow):
        generator.integers(10, dtype=np.int32)  # half a number is kept
    stream = generators.NumpySampleGenerator(quick)
    monkeypatch.setattr(generators.PcgSampleBits, "of", lambda bits: None)
    plain = generators.NumpySampleGenerator(slow)
    before, kept = stream.state(), quick.bit_generator.state
    assert isinstance(before, bytes)
    assert not isinstance(plain.state(), bytes)
    for each in (stream, plain):
        each.seed(key)
    assert quick.bit_generator.state == slow.bit_generator.state
    drawn = [generator.integers(10, size=3, dtype=np.int32).tolist() for generator in (quick, slow)]
    assert drawn[0] == drawn[1]
    assert stream.moved_from(before)
    stream.restore(before)
    assert not stream.moved_from(before)
    assert quick.bit_generator.state == kept
