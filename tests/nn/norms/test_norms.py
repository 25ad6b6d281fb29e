# SPDX-License-Identifier: Apache-2.0
"""Weight norm and spectral norm of a model: on, off, refused, and what stays as it was."""

import copy
import math
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils import parametrize

import truestep as ts

ADD = {"weight": ts.nn.add_weight_norm, "spectral": ts.nn.add_spectral_norm}
REMOVE = {"weight": ts.nn.remove_weight_norm, "spectral": ts.nn.remove_spectral_norm}
BOTH = pytest.mark.parametrize("kind", ["weight", "spectral"])

LAYERS = {
    "linear": lambda: nn.Linear(3, 4),
    "no bias": lambda: nn.Linear(3, 4, bias=False),
    "conv1d": lambda: nn.Conv1d(4, 6, 3, groups=2),
    "conv2d": lambda: nn.Conv2d(2, 3, (1, 2)),
    "conv3d": lambda: nn.Conv3d(2, 3, 2),
    "up1d": lambda: nn.ConvTranspose1d(3, 2, 4, stride=2),
    "up2d": lambda: nn.ConvTranspose2d(4, 6, 3, groups=2),
    "up3d": lambda: nn.ConvTranspose3d(3, 2, 2),
}


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv1d(2, 4, 3), nn.ReLU(), nn.ConvTranspose1d(4, 3, 2), nn.Flatten(), nn.Linear(27, 2)
    )


def weights_of(model):
    return {
        name: module.weight.detach().clone()
        for name, module in model.named_modules()
        if isinstance(getattr(module, "weight", None), torch.Tensor)
    }


def random_state():
    return torch.get_rng_state()


@BOTH
@pytest.mark.parametrize("layer", LAYERS)
def test_the_norm_goes_on_every_kind_of_layer_by_default(kind, layer):
    change = ADD[kind](nn.ModuleList([LAYERS[layer]()]))
    assert change.changed == ("0.weight",)


def test_weight_norm_keeps_the_weights_and_gives_each_output_a_length():
    model = network()
    before = weights_of(model)
    ts.nn.add_weight_norm(model)
    for name, weight in weights_of(model).items():
        torch.testing.assert_close(weight, before[name])
    shapes = [tuple(model[i].parametrizations.weight.original0.shape) for i in (0, 2, 4)]
    assert shapes == [(4, 1, 1), (1, 3, 1), (2, 1)]


def test_dim_0_gives_transposed_convolutions_torchs_own_shape():
    model = nn.ConvTranspose1d(4, 3, 2)
    ts.nn.add_weight_norm(model, dim=0)
    assert model.parametrizations.weight.original0.shape == (4, 1, 1)


def test_spectral_norm_makes_the_largest_singular_value_one():
    model = network().double()
    ts.nn.add_spectral_norm(model)
    for _ in range(500):
        model(torch.randn(2, 2, 10, dtype=torch.float64))
    for index, dim in ((0, 0), (2, 1), (4, 0)):
        matrix = model[index].weight.movedim(dim, 0).flatten(1)
        assert torch.linalg.matrix_norm(matrix, 2).item() == pytest.approx(1, abs=1e-9)


@BOTH
@given(
    layer=st.sampled_from(sorted(LAYERS)),
    dtype=st.sampled_from([torch.float64, torch.float32, torch.bfloat16]),
    training=st.booleans(),
    frozen=st.booleans(),
    seed=st.integers(0, 99),
)
@settings(max_examples=25, deadline=None)
def test_weights_after_removal_are_the_effective_ones_bit_for_bit(kind, layer, dtype, training, frozen, seed):
    torch.manual_seed(seed)
    module = LAYERS[layer]().to(dtype).train(training).requires_grad_(not frozen)
    names = [name for name, _ in module.named_parameters()]
    ADD[kind](module)
    with torch.no_grad():  # as if trained
        for parameter in module.parameters():
            parameter.mul_(1.5).add_(0.1)
    module.eval()
    effective = module.weight.detach().clone()
    module.train(training)
    REMOVE[kind](module)
    assert torch.equal(module.weight, effective)
    assert isinstance(module.weight, nn.Parameter)
    assert module.weight.requires_grad is not frozen
    assert [name for name, _ in module.named_parameters()] == names
    assert not parametrize.is_parametrized(module)
    assert not list(module.buffers())


@BOTH
def test_removal_under_no_grad_leaves_a_parameter(kind):
    module = nn.Linear(3, 2)
    ADD[kind](module)
    with torch.no_grad():
        REMOVE[kind](module)
    assert isinstance(module.weight, nn.Parameter)
    assert module.weight.requires_grad


@BOTH
def test_a_model_can_be_copied_with_the_norm_and_pickled_without(kind):
    model = network()
    ADD[kind](model)
    copied = copy.deepcopy(model)
    REMOVE[kind](copied)
    assert parametrize.is_parametrized(model[0])
    restored = pickle.loads(pickle.dumps(copied))
    assert torch.equal(restored[0].weight, copied[0].weight)


@BOTH
def test_twice_is_once_and_said(kind):
    model = network()
    ADD[kind](model, nn.Conv1d)
    change = ADD[kind](model)
    assert change.changed == ("2.weight", "4.weight")
    assert change.already == ("0.weight",)
    assert model(torch.randn(2, 2, 10)).shape == (2, 2)


@BOTH
def test_modes_frozen_weights_gradients_and_random_state_stay(kind):
    model = network().eval()
    model[0].requires_grad_(False)
    model[4].bias.grad = torch.ones(2)
    state = random_state()
    ADD[kind](model)
    assert torch.equal(random_state(), state)
    assert not any(module.training for module in model.modules())
    assert not any(parameter.requires_grad for parameter in model[0].parameters())
    assert torch.equal(model[4].bias.grad, torch.ones(2))
    first, second = weights_of(model), weights_of(model)
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_weight_norm_says_which_parameters_were_replaced_and_spectral_norm_replaces_none():
    model = network()
    old = model[0].weight
    change = ts.nn.add_weight_norm(model, "0")
    held = model[0].parametrizations.weight
    assert change.replaced == {old: (held.original0, held.original1)}
    back = ts.nn.remove_weight_norm(model)
    assert back.replaced == dict.fromkeys((held.original0, held.original1), (model[0].weight,))
    weight = model[0].weight
    assert not ts.nn.add_spectral_norm(model, "0").replaced
    assert model[0].parametrizations.weight.original is weight
    assert not ts.nn.remove_spectral_norm(model).replaced
    assert model[0].weight is weight


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(5, 3)
        self.body = nn.Linear(3, 3)
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        return self.head(self.body(self.embedding(tokens)))


@BOTH
def test_a_weight_shared_with_another_layer_is_left_by_default(kind):
    model = Tied()
    change = ADD[kind](model)
    assert change.changed == ("body.weight",)
    assert change.left == {"head.weight": "shared with embedding.weight"}
    assert model.head.weight is model.embedding.weight


@BOTH
def test_half_of_a_shared_weight_is_refused_and_nothing_changed(kind):
    model = Tied()
    with pytest.raises(ts.OptionError, match=r"head\.weight is shared with embedding\.weight"):
        ADD[kind](model, "head")
    assert not any(parametrize.is_parametrized(module) for module in model.modules())


@BOTH
def test_a_shared_weight_stays_shared_when_all_its_layers_are_chosen(kind):
    model = Tied().double()
    ADD[kind](model, (nn.Linear, nn.Embedding))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.tensor([1, 2])).square().sum().backward()
    optimizer.step()
    model.eval()
    effective = model.embedding.weight.detach().clone()
    assert torch.equal(model.head.weight, effective)
    with pytest.raises(ts.OptionError, match="shares its weight"):
        REMOVE[kind](model, "head")
    REMOVE[kind](model)
    assert model.head.weight is model.embedding.weight
    assert torch.equal(model.head.weight, effective)


@BOTH
@pytest.mark.parametrize("rnn", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_weights_are_normalised_when_chosen_and_trained(kind, rnn):
    model = nn.ModuleList([rnn(3, 4, num_layers=2, bidirectional=True)])
    assert not any("weight" in name for name in _changed_by_default(kind, model))
    names = [name for name, _ in model.named_parameters()]
    change = ADD[kind](model, rnn)
    assert len(change.changed) == 8
    model[0](torch.randn(5, 2, 3))[0].square().sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    model.eval()
    output = model[0](torch.ones(5, 2, 3))[0]
    REMOVE[kind](model)
    assert [name for name, _ in model.named_parameters()] == names
    torch.testing.assert_close(model[0](torch.ones(5, 2, 3))[0], output)


def _changed_by_default(kind, model):
    with pytest.raises(ts.OptionError, match="None of the chosen layers"):
        ADD[kind](model)
    return ()


@BOTH
def test_zeros_are_refused_where_torch_makes_nan(kind):
    model = network()
    nn.init.zeros_(model[4].weight)
    with pytest.raises(ts.OptionError, match=r"4\.weight: zeros"):
        ADD[kind](model)
    assert not parametrize.is_parametrized(model[0])


def test_one_row_of_zeros_is_enough_for_weight_norm():
    model = nn.Linear(3, 2)
    with torch.no_grad():
        model.weight[1] = 0
    with pytest.raises(ts.OptionError, match="NaN"):
        ts.nn.add_weight_norm(model)
    ts.nn.add_spectral_norm(model)


@BOTH
def test_lazy_layers_other_norms_and_old_hooks_are_refused(kind):
    other = {"weight": "spectral", "spectral": "weight"}[kind]
    with pytest.raises(ts.OptionError, match=r"1\.bias: no shape yet"):
        ADD[kind](nn.Sequential(nn.Linear(2, 2), nn.LazyLinear(3)))
    model = network()
    ADD[other](model, "4")
    with pytest.raises(ts.OptionError, match=r"4\.weight \((Weight|Spectral)Norm\): parametrized already"):
        ADD[kind](model)
    hooked = nn.Sequential(nn.Linear(2, 2))
    torch.nn.utils.spectral_norm(hooked[0])
    with pytest.raises(ts.OptionError, match="old form"):
        ADD[kind](hooked)


@BOTH
@pytest.mark.parametrize("reverse", [False, True])
def test_of_several_kinds_a_model_need_not_have_all(kind, reverse):
    """One list for all models of a kind: convolutions, in however many dimensions."""
    kinds = [nn.Conv1d, nn.Conv2d, nn.ConvTranspose3d]
    several, one = network(), network()
    found = ADD[kind](several, reversed(kinds) if reverse else kinds)
    assert found.changed == ADD[kind](one, nn.Conv1d).changed != ()
    assert REMOVE[kind](several, [nn.Conv2d, nn.Conv1d]).changed == found.changed
    with pytest.raises(
        ts.OptionError, match=r"has no layer of kind Conv2d or Conv3d\. Did you mean 'Conv1d'"
    ):
        ADD[kind](network(), [nn.Conv2d, nn.Conv3d])


@BOTH
def test_a_choice_of_nothing_lists_what_there_is(kind):
    with pytest.raises(
        ts.OptionError, match=r"Sequential has no layer of kind Conv2d\. Did you mean 'Conv1d'"
    ):
        ADD[kind](network(), nn.Conv2d)
    with pytest.raises(ts.OptionError, match=r"No layer is called 'head\.\*'.*There are: 0, 1, 2, 3, 4"):
        ADD[kind](network(), "head.*")
    with pytest.raises(ts.OptionError, match="chosen by kind"):
        ADD[kind](network(), [3])
    with pytest.raises(ts.OptionError, match="has a weight of two or more dimensions"):
        ADD[kind](network(), nn.ReLU)
    with pytest.raises(ts.OptionError, match="normalised weights: none"):
        REMOVE[kind](network())
    with pytest.raises(ts.OptionError, match="expected, got list"):
        ADD[kind]([nn.Linear(2, 2)])
    with pytest.raises(ts.OptionError, match="num_power_iterations=0"):
        ts.nn.add_spectral_norm(network(), num_power_iterations=0)


def test_the_old_hooks_come_off_too():
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2)).requires_grad_(False)
    with pytest.warns(FutureWarning):
        torch.nn.utils.weight_norm(model[0])
    model[0].requires_grad_(False)
    torch.nn.utils.spectral_norm(model[1])
    model.eval()
    output = model(torch.ones(1, 3))
    assert ts.nn.remove_weight_norm(model).changed == ("0.weight",)
    assert ts.nn.remove_spectral_norm(model).changed == ("1.weight",)
    assert torch.equal(model(torch.ones(1, 3)), output)
    assert [name for name, _ in model.named_parameters()] == ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_a_change_can_be_shown_and_saved():
    model = Tied()
    ts.nn.add_weight_norm(model, "body")
    change = ts.nn.add_weight_norm(model)
    assert change.to_dict() == {
        "schema_version": 1,
        "norm": "weight norm",
        "action": "added",
        "changed": [],
        "already": ["body.weight"],
        "left": {"head.weight": "shared with embedding.weight"},
        "num_replaced_parameters": 0,
    }
    assert "had it already" in str(change)
    assert "shared with embedding.weight" in change._repr_html_()


def test_a_learner_trains_a_normalised_model(tmp_path):
    model = network()
    ts.nn.add_weight_norm(model)
    run = ts.Run(tmp_path / "run", progress=False)
    net = run.learner(model, lambda p: torch.optim.SGD(p, lr=0.1))
    before = model[0].parametrizations.weight.original0.detach().clone()
    net.update(lambda batch: net(batch).square().sum(1), torch.randn(8, 2, 10))
    run.close()
    assert not torch.equal(model[0].parametrizations.weight.original0, before)


@pytest.mark.parametrize("add", [ts.nn.add_weight_norm, ts.nn.add_spectral_norm])
@pytest.mark.parametrize("rnn", [nn.LSTM, nn.GRU, nn.RNN])
def test_a_recurrent_layer_with_a_norm_can_be_copied_after_a_training_step(add, rnn):
    """torch alone raises: the layer's list of computed weights has a graph."""
    net, x = nn.Sequential(rnn(3, 2)), torch.randn(4, 2, 3)
    add(net, rnn)
    net[0](x)[0].sum().backward()
    copied = copy.deepcopy(net)
    assert all(map(torch.equal, net.state_dict().values(), copied.state_dict().values()))
    assert torch.equal(net[0](x)[0], copied[0](x)[0])
    assert not {id(p) for p in net.parameters()} & {id(p) for p in copied.parameters()}
    copied[0](x)[0].sum().backward()
    assert all(p.grad is not None for p in copied.parameters())
    assert torch.equal(copy.deepcopy(copied).eval()[0](x)[0], copied.eval()[0](x)[0])


@pytest.mark.parametrize("add", [ts.nn.add_weight_norm, ts.nn.add_spectral_norm])
def test_a_model_on_the_device_meta_gets_the_norm(add):
    net = nn.Sequential(nn.Linear(2, 3, device="meta"))
    assert add(net).changed == ("0.weight",)
    assert net(torch.empty(4, 2, device="meta")).shape == (4, 3)


def test_one_length_for_a_whole_weight_is_torchs_dim_none():
    net, plain = nn.Linear(2, 3), nn.Linear(2, 3)
    ts.nn.add_weight_norm(net, dim=-1)
    nn.utils.parametrizations.weight_norm(plain, dim=None)
    net.load_state_dict(plain.state_dict())
    assert torch.equal(net.weight, plain.weight)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda net: ts.nn.add_weight_norm(net, 3), "by kind .*; got 3"),
        (lambda net: ts.nn.add_weight_norm(net, net[0]), "by kind .*; got Linear"),
        (lambda net: ts.nn.add_weight_norm(net, dim="0"), "dim='0': 0.weight has 2 dimensions"),
        (lambda net: ts.nn.add_weight_norm(net, dim=2), "dim=2: 0.weight has 2 dimensions"),
        (lambda net: ts.nn.add_weight_norm(net, dim=True), "dim=True"),
        (lambda net: ts.nn.add_weight_norm(nn.Linear(2, 0)), "weight: zeros where weight norm divides"),
        (lambda net: ts.nn.add_spectral_norm(net, num_power_iterations="1"), "was given a str where a whole"),
        (lambda net: ts.nn.add_spectral_norm(net, eps=math.nan), "eps=nan"),
        (lambda net: ts.nn.add_spectral_norm(net, eps="x"), "was given a str"),
    ],
)
@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_options_of_a_kind_that_can_not_work_are_refused_before_anything_is_changed(call, message):
    net = nn.Sequential(nn.Linear(2, 3))
    with pytest.raises(ts.OptionError, match=message):
        call(net)
    assert list(net.state_dict()) == ["0.weight", "0.bias"]
