# SPDX-License-Identifier: Apache-2.0
"""Vanilla dropout: the same expectation in training as in evaluation."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import truestep as ts

rates = st.floats(0, 0.95)


def farthest(count: int, p: float) -> float:
    """Return how far a binomial count lies from its mean but once in 1e8 draws, by Bernstein's inequality.

    A number of standard deviations would be wrong for rare events: one in a mean of 0.02 lies 7 of them away.
    """
    if p == 0:
        return 0.0
    exponent = math.log(2e8)
    return exponent / 3 + math.sqrt(exponent**2 / 9 + 2 * exponent * count * p * (1 - p))


class Masks:
    """All masks over a few numbers, with their probabilities, in the place of torch's draw."""

    def __init__(self, monkeypatch, size):
        self.masks = [torch.tensor(mask, dtype=torch.bool) for mask in itertools.product([0, 1], repeat=size)]
        self.monkeypatch = monkeypatch

    def outputs(self, layer, values):
        """Yield (probability, output, gradient of the output's sum) for each mask."""
        kept = 1 - layer.p
        for mask in self.masks:
            inputs = values.clone().requires_grad_()
            with self.monkeypatch.context() as patch:
                patch.setattr(torch.Tensor, "bernoulli_", lambda _, p, mask=mask: mask)
                output = layer(inputs)
            output.sum().backward()
            probability = math.prod(kept if each else layer.p for each in mask.tolist())
            yield probability, output.detach(), inputs.grad


@pytest.mark.parametrize("p", [0.0, 0.2, 0.5, 0.9])
def test_the_expectation_over_all_masks_is_what_evaluation_gives_and_so_is_that_of_gradients(p, monkeypatch):
    layer = ts.nn.VanillaDropout(p)
    values = torch.randn(5, dtype=torch.float64)
    drawn = list(Masks(monkeypatch, 5).outputs(layer, values))
    assert sum(each[0] for each in drawn) == pytest.approx(1)
    layer.eval()
    inputs = values.clone().requires_grad_()
    output = layer(inputs)
    output.sum().backward()
    torch.testing.assert_close(sum(probability * out for probability, out, _ in drawn), output.detach())
    torch.testing.assert_close(sum(probability * grad for probability, _, grad in drawn), inputs.grad)


@given(
    p=rates, seed=st.integers(0, 999), dtype=st.sampled_from([torch.float64, torch.float32, torch.bfloat16])
)
@settings(deadline=None, max_examples=25)
def test_training_keeps_numbers_as_they_are_at_the_rate_1_minus_p(p, seed, dtype):
    torch.manual_seed(seed)
    layer = ts.nn.VanillaDropout(p)
    count = 20_000
    values = torch.rand(count, dtype=dtype) + 1
    output = layer(values)
    kept = output != 0
    assert output.dtype == dtype
    assert torch.equal(output[kept], values[kept])
    assert abs(int(kept.sum()) - count * (1 - p)) <= farthest(count, p)
    assert torch.equal(layer.eval()(values), values * (1 - p))


@given(p=rates, seed=st.integers(0, 999))
@settings(deadline=None, max_examples=25)
def test_inverted_and_vanilla_dropout_differ_by_the_factor_1_minus_p_in_both_modes(p, seed):
    values = torch.randn(50, dtype=torch.float64)
    vanilla, inverted = ts.nn.VanillaDropout(p), nn.Dropout(p)
    torch.testing.assert_close(vanilla.eval()(values), inverted.eval()(values) * (1 - p))
    torch.manual_seed(seed)
    mask = vanilla.train()(torch.ones_like(values))
    torch.testing.assert_close(values * mask, (values * mask / (1 - p)) * (1 - p))


@pytest.mark.parametrize("p", [1, 1.0, -0.1, 80, math.nan, True, "0.5", None])
def test_an_odd_rate_is_refused_with_what_p_means(p):
    with pytest.raises(ts.OptionError, match="DROPPED"):
        ts.nn.VanillaDropout(p)


def test_the_layer_says_what_it_drops_and_keeps():
    assert repr(ts.nn.VanillaDropout(0.8)) == "VanillaDropout(p=0.8, drops 80%, keeps 20%)"
