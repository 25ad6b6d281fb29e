# SPDX-License-Identifier: Apache-2.0
"""State dicts of torch's old hooks and of today's parametrizations, one from the other."""

import warnings

import pytest
import torch
from torch import nn

import truestep as ts


def network():
    return nn.Sequential(
        nn.Conv1d(2, 4, 3),
        nn.ModuleDict({"up": nn.ConvTranspose1d(4, 3, 2)}),
        nn.Linear(5, 2),
        nn.BatchNorm1d(2),
    )


def forward(model, inputs):
    return model[3](model[2](model[1]["up"](model[0](inputs))).transpose(0, 1)[:2].flatten(1).T[:, :2])


def hooked(kind):
    """Return the network with torch's old hooks, trained a little."""
    model = network()
    apply = getattr(torch.nn.utils, f"{kind}_norm")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        for layer in (model[0], model[1]["up"], model[2]):
            apply(layer)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(3):
        forward(model, torch.randn(2, 2, 6)).square().sum().backward()
        optimizer.step()
    return model


def today(kind):
    model = network()
    add = ts.nn.add_weight_norm if kind == "weight" else ts.nn.add_spectral_norm
    add(model, **({"dim": 0} if kind == "weight" else {}))
    return model


@pytest.mark.parametrize("kind", ["weight", "spectral"])
def test_a_checkpoint_of_the_old_hooks_loads_and_gives_the_same_outputs_bit_for_bit(kind):
    torch.manual_seed(0)
    old, new = hooked(kind), today(kind)
    new.load_state_dict(ts.nn.convert_norm_keys(old.state_dict()))
    inputs = torch.randn(2, 2, 6)
    old.eval()
    new.eval()
    assert torch.equal(forward(new, inputs), forward(old, inputs))


@pytest.mark.parametrize("kind", ["weight", "spectral"])
def test_a_checkpoint_of_today_loads_into_the_old_hooks(kind):
    torch.manual_seed(0)
    old, new = hooked(kind).eval(), today(kind).eval()
    old.load_state_dict(ts.nn.convert_norm_keys(new.state_dict(), to="hooks"))
    inputs = torch.randn(2, 2, 6)
    assert torch.equal(forward(new, inputs), forward(old, inputs))


@pytest.mark.parametrize("kind", ["weight", "spectral"])
def test_both_directions_undo_each_other_and_keep_order_values_and_metadata(kind):
    state = hooked(kind).state_dict()
    converted = ts.nn.convert_norm_keys(state)
    back = ts.nn.convert_norm_keys(converted, to="hooks")
    assert list(back) == list(state)
    assert all(back[key] is state[key] for key in state)
    assert back._metadata is state._metadata
    assert list(converted) != list(state)
    assert list(ts.nn.convert_norm_keys(converted)) == list(converted)
    assert list(ts.nn.convert_norm_keys(state, to="hooks")) == list(state)


def test_names_that_only_look_like_a_norm_stay():
    state = {
        "a.weight_g": torch.ones(3),
        "a.weight_v": torch.ones(4, 5),
        "b.weight_g": torch.ones(1),
        "weight_u": torch.ones(2),
    }
    assert list(ts.nn.convert_norm_keys(state)) == list(state)


def test_a_length_of_the_whole_tensor_is_one():
    state = {"weight_g": torch.tensor(1.0), "weight_v": torch.ones(4, 5)}
    assert list(ts.nn.convert_norm_keys(state)) == [
        "parametrizations.weight.original0",
        "parametrizations.weight.original1",
    ]


def test_what_is_no_state_dict_of_a_model_is_refused_with_what_to_give():
    with pytest.raises(ts.OptionError, match=r"checkpoint\['model'\]"):
        ts.nn.convert_norm_keys({"model": {"weight_g": torch.ones(1)}, "step": 3})
    with pytest.raises(ts.OptionError, match="to='new'"):
        ts.nn.convert_norm_keys({}, to="new")
    with pytest.raises(ts.OptionError, match=r"has no weight_v beside it: torch before 1\.0"):
        ts.nn.convert_norm_keys(
            {"weight": torch.ones(1), "weight_orig": torch.ones(1), "weight_u": torch.ones(1)}
        )
    both = {
        "weight_g": torch.ones(4, 1),
        "weight_v": torch.ones(4, 5),
        "parametrizations.weight.original0": torch.ones(4, 1),
    }
    with pytest.raises(ts.OptionError, match="Both old and new names"):
        ts.nn.convert_norm_keys(both)


@pytest.mark.parametrize("state", [None, [], nn.Linear(1, 1), {3: torch.ones(1)}])
def test_what_is_no_state_dict_is_refused(state):
    with pytest.raises(ts.OptionError, match=r"A model's state dict is expected.*model\.state_dict\(\)"):
        ts.nn.convert_norm_keys(state)
