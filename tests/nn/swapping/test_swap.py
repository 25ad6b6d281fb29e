# SPDX-License-Identifier: Apache-2.0
"""Swapping activations: everywhere, once for a shared one, with what was kept, and with what can't be swapped named."""

import linecache

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.functional import relu

import truestep as ts


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared = nn.ReLU(inplace=True)
        self.again = self.shared
        self.body = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.ModuleList([nn.ReLU6(), nn.ReLU()]))
        self.body[1].eval()

    def forward(self, inputs):
        return self.again(self.shared(self.body[0](inputs)))


def test_every_module_of_the_kind_is_swapped_and_a_shared_one_stays_shared():
    net = Net()
    swap = ts.nn.swap_activation(net, nn.ReLU, lambda old: nn.LeakyReLU(0.1))
    assert swap.swapped == ("shared", "again", "body.1", "body.2.1")
    assert swap.functional == swap.unread == ()
    assert net.again is net.shared
    assert net.shared.inplace
    assert net.shared.negative_slope == 0.1
    assert not net.body[1].inplace
    assert not net.body[1].training
    assert net.shared.training
    assert isinstance(net.body[2][0], nn.ReLU6)
    assert "body.2.1" in str(swap)
    assert swap.to_dict()["swapped"] == ["shared", "again", "body.1", "body.2.1"]


def test_a_kind_is_made_with_the_old_ones_inplace_and_not_with_the_old_one_as_its_argument():
    net = Net()
    ts.nn.swap_activation(net, nn.ReLU, nn.SELU)
    assert net.shared.inplace is True
    assert net.body[1].inplace is False
    ts.nn.swap_activation(net, nn.SELU, nn.Tanh)
    assert isinstance(net.shared, nn.Tanh)


def test_an_activation_with_parameters_comes_to_the_models_type():
    net = Net().double()
    ts.nn.swap_activation(net, nn.ReLU, nn.PReLU)
    assert net.shared.weight.dtype == torch.float64
    assert net(torch.ones(2, 3, dtype=torch.float64)).dtype == torch.float64


def test_the_old_module_may_be_kept_inside_the_new_one():
    net = nn.Sequential(nn.ReLU())
    ts.nn.swap_activation(net, nn.ReLU, lambda old: nn.Sequential(old, nn.Dropout(0.1)))
    assert isinstance(net[0][0], nn.ReLU)


class Functional(nn.Module):
    def __init__(self):
        super().__init__()
        self.relu = nn.ReLU()
        self.function = F.relu

    def forward(self, inputs):
        values = F.relu(self.relu(inputs))
        values = relu(values) + torch.relu_(values) + values.relu()
        return self.helper(values) + F.relu6(values)

    def helper(self, values):
        return torch.nn.functional.relu(values)


def test_functions_are_found_in_the_code_and_named_with_file_and_line():
    swap = ts.nn.swap_activation(nn.Sequential(Functional(), Functional()), nn.ReLU, nn.SELU)
    assert swap.swapped == ("0.relu", "1.relu")
    first = Functional.forward.__code__.co_firstlineno
    places = [f"Functional.forward ({__file__}:{first + line})" for line in (1, 2, 2, 2)]
    assert set(swap.functional) == {
        *places,
        f"Functional.helper ({__file__}:{Functional.helper.__code__.co_firstlineno + 1})",
        "0.function",
        "1.function",
    }


def test_code_that_cannot_be_read_is_said():
    names = {"nn": nn, "F": F}
    exec(
        compile(
            "class Typed(nn.Module):\n    def forward(self, inputs):\n        return F.relu(inputs)\n",
            "<typed>",
            "exec",
        ),
        names,
    )
    linecache.clearcache()
    swap = ts.nn.swap_activation(nn.Sequential(names["Typed"]()), nn.ReLU, nn.SELU)
    assert swap.swapped == swap.functional == ()
    assert swap.unread == ("Typed",)


def test_torchs_transformer_layer_computes_the_new_activation_in_evaluation_too():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, activation=nn.ReLU())
    ts.nn.swap_activation(layer, nn.ReLU, nn.Tanh)
    inputs = torch.randn(2, 3, 8)
    expected = layer.eval()(inputs)  # with gradients the slow path, which calls the module
    with torch.no_grad():
        torch.testing.assert_close(layer(inputs), expected)
    torchs = nn.Sequential(nn.TransformerEncoderLayer(8, 2), nn.RNN(2, 2, nonlinearity="relu"), nn.ReLU())
    swap = ts.nn.swap_activation(torchs, nn.ReLU, nn.Tanh)
    assert swap.functional == ("0.activation", "1.nonlinearity")


def test_what_cannot_be_swapped_is_refused_and_nothing_changed():
    with pytest.raises(ts.OptionError, match="The model itself is a ReLU"):
        ts.nn.swap_activation(nn.ReLU(), nn.ReLU, nn.SELU)
    with pytest.raises(ts.OptionError, match="GELU matches no layer of Net"):
        ts.nn.swap_activation(Net(), nn.GELU, nn.SELU)
    with pytest.raises(ts.OptionError, match="gave float for ReLU"):
        ts.nn.swap_activation(Net(), nn.ReLU, lambda old: 0.1)
    net = Net()
    handle = net.body[1].register_forward_hook(lambda *_: None)
    with pytest.raises(ts.OptionError, match=r"body\.1 has hooks"):
        ts.nn.swap_activation(net, nn.ReLU, nn.SELU)
    assert isinstance(net.shared, nn.ReLU)
    handle.remove()
    with pytest.raises(ts.OptionError, match="expected, got list"):
        ts.nn.swap_activation([net], nn.ReLU, nn.SELU)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (nn.ReLU(), nn.SiLU, r"old=\(ReLU\(\),\): give a kind of module"),
        ("ReLU", nn.SiLU, "give a kind of module"),
        ([nn.ReLU], nn.SiLU, "several in a tuple"),
        ((), nn.SiLU, "give a kind of module"),
        (F.relu, nn.SiLU, "give a kind of module"),
        (nn.ReLU, nn.SiLU(), r"new=SiLU\(\): give a kind"),
        (nn.ReLU, None, "new=None"),
        (nn.ReLU, F.silu, "a function of tensors, and a module is needed"),
        (nn.ReLU, nn.Threshold, r"Threshold needs threshold, value: write lambda old: nn\.Threshold"),
    ],
)
def test_what_makes_no_module_is_refused_and_the_model_stays(old, new, message):
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    relu = net[1]
    with pytest.raises(ts.OptionError, match=message):
        ts.nn.swap_activation(net, old, new)
    assert net[1] is relu
