# SPDX-License-Identifier: Apache-2.0
"""SELU, alpha dropout and LeCun weights as one set: applied, measured, and what stands in the way."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import truestep as ts

WIDTH, DEPTH = 256, 16


def network(activation=nn.ReLU, dropout=True):
    layers = []
    for _ in range(DEPTH):
        layers += [nn.Linear(WIDTH, WIDTH), activation(), *([nn.Dropout(0.1)] if dropout else [])]
    return nn.Sequential(*layers, nn.Linear(WIDTH, 3))


def inputs():
    return torch.randn(256, WIDTH, generator=torch.Generator().manual_seed(7))


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("training", [True, False])
def test_the_set_keeps_mean_0_and_deviation_1_through_sixteen_layers_and_torchs_default_does_not(training):
    net = network().train(training)
    assert not ts.nn.check_self_normalizing(net, inputs()).holds
    done = ts.nn.self_normalizing(net, generator=seeded())
    check = ts.nn.check_self_normalizing(net, inputs())
    assert check.holds, str(check)
    assert len(check.layers) == DEPTH + 1
    assert len(done.activations) == len(done.dropouts) == DEPTH
    assert len(done.weights) == DEPTH + 1
    assert done.concerns == ()


@pytest.mark.parametrize("missing", ["weights", "activation", "dropout"])
def test_each_part_of_the_set_is_needed(missing):
    net = network()
    ts.nn.self_normalizing(net, generator=seeded())
    if missing == "weights":
        for layer in net[::3]:
            layer.reset_parameters()
    elif missing == "activation":
        ts.nn.swap_activation(net, nn.SELU, nn.ReLU)
    else:
        ts.nn.swap_activation(net, nn.AlphaDropout, lambda old: nn.Dropout(0.3))
    check = ts.nn.check_self_normalizing(net, inputs())
    assert not check.holds
    assert check.to_dict()["holds"] is False
    assert "outside" in str(check)


def test_convolutions_get_feature_alpha_dropout():
    net = nn.Sequential(
        nn.Conv2d(3, 64, 3), nn.LeakyReLU(inplace=True), nn.Dropout2d(0.05), nn.Conv2d(64, 64, 3), nn.GELU()
    )
    done = ts.nn.self_normalizing(net, generator=seeded())
    assert [type(layer).__name__ for layer in net] == [
        "Conv2d",
        "SELU",
        "FeatureAlphaDropout",
        "Conv2d",
        "SELU",
    ]
    assert net[1].inplace
    assert net[2].p == 0.05
    assert done.dropouts == ("2",)
    assert "now SELU" in str(done)


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 8), nn.Tanh())

    def forward(self, values):
        return F.dropout(F.relu(self.body(values)), 0.1, self.training)


def test_what_stands_in_the_way_is_warned_about_and_listed():
    net = Mixed()
    with pytest.warns(
        UserWarning, match=r"norm layers.*: body\.1; activations that are not known to normalise: body\.4"
    ):
        done = ts.nn.self_normalizing(net, generator=seeded())
    assert len(done.concerns) == 3
    assert done.concerns[2].endswith(
        f"Mixed.forward ({__file__}:{Mixed.forward.__code__.co_firstlineno + 1})"
    )


def test_looking_changes_nothing():
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.SELU(), nn.AlphaDropout(0.1)).train()
    before = {key: value.clone() for key, value in net.state_dict().items()}
    state = torch.get_rng_state()
    ts.nn.check_self_normalizing(net, torch.randn(8, 4, generator=seeded()))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())
    assert net.training
    assert not net[2]._forward_hooks
    assert all(parameter.grad is None for parameter in net.parameters())
    with pytest.raises(RuntimeError, match="shapes"):
        ts.nn.check_self_normalizing(net, torch.ones(2, 3))
    assert not net[2]._forward_hooks


def test_inputs_that_are_not_standardised_do_not_hold():
    net = network(dropout=False)
    ts.nn.self_normalizing(net, generator=seeded())
    check = ts.nn.check_self_normalizing(net, (5 * inputs() + 3,))
    assert not check.layers[0].holds


def test_bad_input_is_refused():
    with pytest.raises(ts.OptionError, match="calls no activation module"):
        ts.nn.check_self_normalizing(nn.Linear(2, 2), torch.ones(1, 2))
    with pytest.raises(ts.OptionError, match="no shape yet"):
        ts.nn.self_normalizing(nn.Sequential(nn.LazyLinear(2), nn.ReLU()))
    with pytest.raises(ts.OptionError, match="expected, got int"):
        ts.nn.check_self_normalizing(3, torch.ones(1))


def test_frozen_weights_are_left_and_said():
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU()).requires_grad_(False)
    with pytest.warns(UserWarning, match=r"frozen, and left as they were: 0\.weight, 0\.bias"):
        done = ts.nn.self_normalizing(net)
    assert done.weights == ()


def test_a_model_with_nothing_to_change_or_to_measure_is_refused():
    with pytest.raises(ts.OptionError, match="LSTM has no linear or convolutional layer"):
        ts.nn.self_normalizing(nn.LSTM(2, 2))
    net = nn.Sequential(nn.Linear(2, 2), nn.SELU())
    with pytest.raises(ts.OptionError, match="The batch is empty"):
        ts.nn.check_self_normalizing(net, torch.ones(0, 2))
    with pytest.raises(ts.OptionError, match="on the device meta"):
        ts.nn.check_self_normalizing(net.to("meta"), torch.ones(3, 2, device="meta"))


def test_a_compiled_model_is_measured_as_its_original():
    net, inputs = nn.Sequential(nn.Linear(2, 2), nn.SELU()), torch.randn(9, 2)
    compiled = torch.compile(net, backend="eager")
    compiled(inputs)
    expected = ts.nn.check_self_normalizing(net, inputs).layers
    assert [(each.mean, each.std) for each in ts.nn.check_self_normalizing(compiled, inputs).layers] == [
        (each.mean, each.std) for each in expected
    ]
