# SPDX-License-Identifier: Apache-2.0
"""Noise made symmetric: the same for each example, at each size of a batch, and nothing is left behind."""

import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Beta, Categorical, Gamma, Normal

from truestep.doctor.relations.noise import SymmetricNoise

DRAWS = {
    "randn": lambda n: torch.randn(n, 5),
    "rand of a tuple": lambda n: torch.rand((n, 3, 2)),
    "randint": lambda n: torch.randint(0, 100, (n, 4)),
    "a generator": lambda n: torch.randn(n, 7, generator=torch.Generator().manual_seed(1)),
    "randn_like": lambda n: torch.randn_like(torch.zeros(n, 40)),
    "in place": lambda n: torch.empty(n, 17).normal_(),
    "uniform_": lambda n: torch.empty(n, 3).uniform_(-2, 5),
    "exponential_": lambda n: torch.zeros(n, 3).exponential_(),
    "bernoulli of chances": lambda n: torch.bernoulli(torch.full((n, 9), 0.5)),
    "bernoulli_ of chances": lambda n: torch.empty(n, 9).bernoulli_(torch.full((n, 9), 0.3)),
    "normal of means": lambda n: torch.normal(torch.zeros(n, 4), torch.ones(n, 4)),
    "multinomial": lambda n: torch.multinomial(torch.ones(n, 9), 3),
    "poisson": lambda n: torch.poisson(torch.full((n, 4), 3.0)),
    "gumbel": lambda n: F.gumbel_softmax(torch.zeros(n, 5)),
    "a distribution": lambda n: Normal(torch.zeros(n), 1.0).rsample(),
    "actions": lambda n: Categorical(logits=torch.zeros(n, 30)).sample(),
    "gamma": lambda n: Gamma(torch.ones(n, 2), torch.ones(n, 2)).rsample(),
    "by blocks of rows": lambda n: torch.randn(n * 4, 5).reshape(n, 20),
    "sequences first": lambda n: torch.randn(11, n, 3).transpose(0, 1),
    "numpy": lambda n: torch.from_numpy(np.random.randn(n, 3)),
    "dropout in a recurrent layer": lambda n: RECURRENT(torch.ones(n, 3, 4))[0],
    "dropout in attention": lambda n: ATTENTION(*[torch.ones(n, 3, 4)] * 3)[0],
    "dropout": lambda n: F.dropout(torch.ones(n, 8)),
    "alpha dropout": lambda n: nn.AlphaDropout()(torch.ones(n, 8)),
    "whole channels": lambda n: F.dropout2d(torch.ones(n, 3, 2, 2)),
}
RECURRENT = nn.LSTM(4, 4, 2, dropout=0.5, batch_first=True)
ATTENTION = nn.MultiheadAttention(4, 2, dropout=0.5, batch_first=True)


def drawn(name, count):
    with SymmetricNoise(count), torch.no_grad():
        torch.rand(3), random.random()
        return DRAWS[name](count), torch.rand(()), random.random(), np.random.rand()


@pytest.mark.parametrize("name", DRAWS)
def test_each_example_gets_the_same_numbers_in_batches_of_any_size(name):
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    first = drawn(name, 7)
    for count in (7, 14, 1, 3):
        values, *rest = drawn(name, count)
        assert all(torch.equal(row, values[0]) for row in values)
        assert torch.allclose(values[0].double(), first[0][0].double(), rtol=1e-5, atol=1e-6)
        assert rest == list(first[1:])  # what is drawn behind it does not depend on its size
    after = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]


def test_draws_differ_from_each_other():
    with SymmetricNoise(4):
        assert not torch.equal(torch.randn(4, 3), torch.randn(4, 3))
        assert Beta(1.0, 1.0).sample() != Beta(1.0, 1.0).sample()


def test_a_permutation_of_the_examples_is_the_identity():
    with SymmetricNoise(6):
        assert torch.randperm(6).tolist() == list(range(6))
        assert np.random.permutation(12).tolist() == list(range(12))
        assert sorted(torch.randperm(7).tolist()) == list(range(7))


def test_batch_normalisation_keeps_to_its_stored_statistics():
    norm = nn.BatchNorm1d(3)
    norm.running_mean.fill_(2.0)
    before = {name: each.clone() for name, each in norm.state_dict().items() if "running" in name}
    with SymmetricNoise(5):
        found = norm(torch.full((5, 3), 2.0))
    assert found.abs().max() < 1e-6
    assert all(torch.equal(norm.state_dict()[name], each) for name, each in before.items())


def test_a_generator_of_ones_own_is_not_advanced():
    generator = torch.Generator().manual_seed(5)
    before = generator.get_state()
    with SymmetricNoise(4):
        torch.randn(4, generator=generator)
    assert torch.equal(generator.get_state(), before)


def test_frozen_tensors_keep_their_values_whatever_writes_to_them():
    codes, other = torch.ones(3), torch.ones(3)
    with SymmetricNoise(4, frozen=[codes]), torch.no_grad():
        codes.lerp_(torch.zeros(3), 0.5)
        codes[0] = 7
        codes.data.add_(1)
        other.add_(1)
    assert codes.tolist() == [1, 1, 1]
    assert other.tolist() == [2, 2, 2]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_the_coarsest_type_is_known(dtype):
    with SymmetricNoise(4) as noise:
        torch.ones(4, dtype=torch.float64).to(dtype).sum()
    assert noise.coarsest == torch.finfo(dtype).eps
