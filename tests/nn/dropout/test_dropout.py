# SPDX-License-Identifier: Apache-2.0
"""Vanilla dropout: the same expectation in training as in evaluation, and conversion without a change of outputs."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import truestep as ts

rates = st.floats(0, 0.95)


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
    assert abs(int(kept.sum()) - count * (1 - p)) <= 6 * math.sqrt(count * p * (1 - p)) + 1e-9
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


def network(dropout, p=0.25):
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv1d(2, 4, 2), nn.ReLU(), dropout(p), nn.Conv1d(4, 4, 2), nn.ReLU(), dropout(p)),
        *(nn.Flatten(), nn.Linear(12, 3)),
    ).double()


@pytest.mark.parametrize(
    ("to", "old", "new"),
    [("inverted", ts.nn.VanillaDropout, nn.Dropout), ("vanilla", nn.Dropout, ts.nn.VanillaDropout)],
)
def test_a_converted_model_gives_the_same_outputs_in_evaluation_and_the_same_expectation_in_training(
    to, old, new
):
    net, inputs = network(old), torch.randn(3, 2, 5, dtype=torch.float64)
    expected = net.eval()(inputs)
    done = ts.nn.convert_dropout(net, to=to)
    assert done.dropouts == ("2", "5")
    assert list(done.factors) == ["3", "7"]
    assert done.factors["3"] == pytest.approx(0.75 if to == "inverted" else 4 / 3)
    assert isinstance(net[2], new)
    assert not net[2].training
    torch.testing.assert_close(net(inputs), expected)
    assert "3.weight" in str(done)
    back = ts.nn.convert_dropout(net, to={"inverted": "vanilla", "vanilla": "inverted"}[to])
    assert back.dropouts == ("2", "5")
    for parameter, other in zip(net.parameters(), network(old).parameters(), strict=True):
        torch.testing.assert_close(parameter, other)


@pytest.mark.parametrize("to", ["inverted", "vanilla"])
def test_one_dropout_before_one_layer_is_the_same_in_training_for_each_mask(to, monkeypatch):
    vanilla = nn.Sequential(ts.nn.VanillaDropout(0.25), nn.Linear(4, 2)).double()
    inverted = nn.Sequential(nn.Dropout(0.25), nn.Linear(4, 2)).double()
    inverted.load_state_dict(vanilla.state_dict())
    source = vanilla if to == "inverted" else inverted
    values = torch.randn(4, dtype=torch.float64)
    masks = list(itertools.product([0.0, 1.0], repeat=4))
    scale = {"inverted": 1.0, "vanilla": 1 / 0.75}[to]  # what the source multiplies kept numbers with
    before = [source[1](values * torch.tensor(mask, dtype=torch.float64) * scale) for mask in masks]
    ts.nn.convert_dropout(source, to=to)
    scale = {"inverted": 1 / 0.75, "vanilla": 1.0}[to]
    after = [source[1](values * torch.tensor(mask, dtype=torch.float64) * scale) for mask in masks]
    torch.testing.assert_close(torch.stack(after), torch.stack(before))


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop, self.layer = ts.nn.VanillaDropout(0.5), nn.Linear(3, 3)

    def forward(self, values):
        dropped = self.drop(values)
        return dropped + self.layer(dropped)


class Untraceable(nn.Module):
    def forward(self, values):
        return values if values.sum() > 0 else -values


def test_what_cannot_be_converted_is_refused_and_nothing_changed():
    net = Residual()
    weight = net.layer.weight.detach().clone()
    with pytest.raises(ts.OptionError, match=r"goes to .*add"):
        ts.nn.convert_dropout(net)
    assert torch.equal(net.layer.weight, weight)
    tied = nn.Sequential(nn.Linear(3, 3), ts.nn.VanillaDropout(0.5), nn.Linear(3, 3))
    tied[2].weight = tied[0].weight
    normed = nn.Sequential(ts.nn.VanillaDropout(0.5), nn.Linear(3, 3))
    ts.nn.add_weight_norm(normed)
    cases = {
        r"2\.weight is shared with 0\.weight": tied,
        r"1\.weight is computed": normed,
        "calls no VanillaDropout": network(nn.Dropout),
        "can't be traced": Untraceable(),
    }
    for message, model in cases.items():
        with pytest.raises(ts.OptionError, match=message):
            ts.nn.convert_dropout(model)
    inside = nn.Sequential(nn.TransformerEncoderLayer(4, 2), nn.Dropout(0.1), nn.Linear(4, 4))
    with pytest.raises(ts.OptionError, match=r"0\.dropout.*can't be read"):
        ts.nn.convert_dropout(inside, to="vanilla")
    with pytest.raises(ts.OptionError, match="to='torch'"):
        ts.nn.convert_dropout(network(nn.Dropout), to="torch")
    with pytest.raises(ts.OptionError, match="drops everything"):
        ts.nn.convert_dropout(nn.Sequential(nn.Dropout(1.0), nn.Linear(2, 2)), to="vanilla")


@pytest.mark.parametrize("p", [1, 1.0, -0.1, 80, math.nan, True, "0.5", None])
def test_an_odd_rate_is_refused_with_what_p_means(p):
    with pytest.raises(ts.OptionError, match="DROPPED"):
        ts.nn.VanillaDropout(p)


def test_the_layer_says_what_it_drops_and_keeps():
    assert repr(ts.nn.VanillaDropout(0.8)) == "VanillaDropout(p=0.8, drops 80%, keeps 20%)"
