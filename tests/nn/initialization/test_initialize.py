# SPDX-License-Identifier: Apache-2.0
"""Initial weights: the laws of variance, what is written and what is left, and what is refused."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import truestep as ts

WIDTH, EXAMPLES = 192, 128


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def close_to(std, count, sigmas=5.0):
    """Return the bound on a sample's standard deviation: its relative error is about 1/√(2·count)."""
    return pytest.approx(std, rel=sigmas / math.sqrt(2 * count))


# ------------------------------------------------------------------ laws


def second_moments(rule, activation, depth=10, width=WIDTH, seeds=4):
    """Return the mean square before each activation of a deep net, averaged over seeds."""
    moments = torch.zeros(depth, dtype=torch.float64)
    for seed in range(seeds):
        layers = [part for _ in range(depth) for part in (nn.Linear(width, width), activation())]
        net = nn.Sequential(*layers).double()
        ts.nn.initialize(net, rule, generator=seeded(seed))
        value = torch.randn(EXAMPLES, width, dtype=torch.float64, generator=seeded(100 + seed))
        with torch.no_grad():
            for index in range(depth):
                value = net[2 * index](value)
                moments[index] += value.square().mean() / seeds
                value = net[2 * index + 1](value)
    return moments


@pytest.mark.sliced(3)
@pytest.mark.parametrize(
    ("rule", "activation"),
    [
        *(
            ("kaiming", each)
            for each in (nn.ReLU, nn.GELU, nn.SiLU, nn.Tanh, nn.SELU, nn.ELU, lambda: nn.LeakyReLU(0.3))
        ),
        *(("kaiming_uniform", each) for each in (nn.ReLU, nn.Tanh)),
        *(("orthogonal", each) for each in (nn.ReLU, nn.Tanh)),
    ],
)
def test_the_size_of_what_is_passed_on_stays_the_same_through_ten_layers(rule, activation):
    moments = second_moments(rule, activation)
    assert moments.log().abs().max() < math.log(1.6)


def test_lecun_keeps_unit_variance_through_selu_and_the_default_does_not():
    assert second_moments("lecun", nn.SELU)[-1].item() == pytest.approx(1, rel=0.3)
    assert second_moments("lecun", nn.ReLU)[-1].item() < 0.01


@given(
    activation=st.sampled_from([nn.ReLU(), nn.LeakyReLU(0.2), nn.PReLU(init=0.1), nn.SELU(), nn.Identity()])
)
@settings(deadline=None, max_examples=10)
def test_gains_are_those_known_in_closed_form(activation):
    slope = {nn.ReLU: 0.0, nn.LeakyReLU: 0.2, nn.PReLU: 0.1, nn.Identity: 1.0}.get(type(activation))
    expected = 1.0 if slope is None else math.sqrt(2 / (1 + slope**2))
    assert ts.nn.activation_gain(activation) == pytest.approx(expected, abs=1e-7)


def test_a_gain_is_the_same_for_a_module_and_a_function_and_leaves_both_alone():
    prelu = nn.PReLU(4)
    state = torch.get_rng_state()
    ts.nn.activation_gain(prelu)
    assert ts.nn.activation_gain(nn.GELU()) == ts.nn.activation_gain(F.gelu)
    assert ts.nn.activation_gain(nn.ReLU(inplace=True)) == ts.nn.activation_gain(torch.relu)
    assert prelu.weight.dtype == torch.float32
    assert prelu.weight.grad is None
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    "wrong",
    [nn.ReLU, "relu", None, lambda x: x * 0, lambda x: x.sum(), lambda x: x.log(), nn.Softmax(0), nn.GLU()],
)
def test_what_has_no_gain_is_refused(wrong):
    with pytest.raises(ts.OptionError):
        ts.nn.activation_gain(wrong)


@pytest.mark.parametrize(
    ("layer", "fan_in", "fan_out"),
    [
        (lambda: nn.Linear(300, 200), 300, 200),
        (lambda: nn.Bilinear(20, 30, 50), 600, 50),
        (lambda: nn.Conv2d(32, 48, 3), 288, 432),
        (lambda: nn.Conv2d(32, 64, 3, groups=4), 72, 144),
        (lambda: nn.Conv1d(32, 64, 4, stride=2), 128, 128),
        (lambda: nn.ConvTranspose1d(64, 48, 4, stride=2), 128, 192),
        (lambda: nn.ConvTranspose2d(64, 32, 4, stride=2, groups=2), 128, 256),
    ],
)
def test_weights_have_the_standard_deviation_of_their_true_fans(layer, fan_in, fan_out):
    module = layer()
    for rule, std in {
        "lecun": fan_in**-0.5,
        "xavier": (2 / (fan_in + fan_out)) ** 0.5,
        "xavier_uniform": (2 / (fan_in + fan_out)) ** 0.5,
    }.items():
        ts.nn.initialize(module, rule, generator=seeded())
        assert module.weight.std().item() == close_to(std, module.weight.numel())
        assert not module.bias.any()


@pytest.mark.parametrize(
    "layer", [lambda: nn.Conv1d(16, 32, 4, stride=2), lambda: nn.ConvTranspose1d(32, 16, 8, stride=4)]
)
def test_lecun_keeps_unit_variance_through_strided_and_transposed_convolutions(layer):
    total = 0.0
    for seed in range(20):
        module = layer().double()
        ts.nn.initialize(module, "lecun", generator=seeded(seed))
        inputs = torch.randn(8, module.in_channels, 200, dtype=torch.float64, generator=seeded(seed + 50))
        with torch.no_grad():
            total += module(inputs)[..., 20:-20].square().mean().item() / 20
    assert total == pytest.approx(1, rel=0.1)


def test_recurrent_layers_get_orthogonal_gates_and_an_open_forget_gate():
    lstm = nn.LSTM(20, 30, num_layers=2)
    ts.nn.initialize(lstm, "xavier", generator=seeded())
    for gate in lstm.weight_hh_l1.chunk(4):
        torch.testing.assert_close(gate @ gate.T, torch.eye(30), atol=1e-5, rtol=0)
    assert lstm.weight_ih_l0.std().item() == close_to((2 / 50) ** 0.5, 2400)
    assert torch.equal(lstm.bias_ih_l0, torch.cat([torch.zeros(30), torch.ones(30), torch.zeros(60)]))
    assert not lstm.bias_hh_l0.any()


# ------------------------------------------------------------------ what is written


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3)
        self.norm = nn.BatchNorm2d(8)
        self.first = nn.Linear(8, 16)
        self.second = nn.Linear(16, 16)
        self.slope = nn.PReLU()
        self.head = nn.Linear(16, 4)

    def forward(self, images):
        features = self.norm(self.stem(images)).relu().mean((2, 3))
        features = F.dropout(F.leaky_relu(self.first(features), 0.2), 0.1, self.training)
        return self.head(self.slope(self.second(features)))


def gains(done):
    return {each.name: each.gain for each in done.tensors if each.gain is not None}


def test_the_gain_is_that_of_the_activation_before_also_where_it_is_a_function():
    done = ts.nn.initialize(Net(), "kaiming", generator=seeded())
    assert {name: round(gain, 4) for name, gain in gains(done).items()} == {
        "stem.weight": 1,
        "first.weight": round(2**0.5, 4),
        "second.weight": round((2 / 1.04) ** 0.5, 4),
        "head.weight": round((2 / 1.0625) ** 0.5, 4),
    }
    assert done.left == {"slope.weight": "no rule for PReLU's weight"}
    assert "leaky_relu" in str(done)
    assert len(done.to_dict()["tensors"]) == 10
    net = Net()
    state = torch.get_rng_state()
    ts.nn.initialize(net, "kaiming", generator=seeded())
    assert torch.equal(torch.get_rng_state(), state)


class Branches(nn.Module):
    """torch.fx can't follow a branch on values."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.1), nn.GELU(), nn.Linear(4, 4))
        self.head = nn.Linear(4, 2)

    def forward(self, inputs):
        return self.head(self.body(inputs) if inputs.sum() > 0 else inputs)


def test_where_the_model_cannot_be_traced_what_comes_before_is_asked_for():
    with pytest.raises(ts.OptionError, match=r"comes before body\.0, head can't be read"):
        ts.nn.initialize(Branches(), "kaiming")
    done = ts.nn.initialize(Branches(), "kaiming", activation=nn.ReLU())
    assert gains(done)["body.3.weight"] == pytest.approx(1.5335, abs=1e-4)
    assert gains(done)["head.weight"] == pytest.approx(2**0.5)
    ts.nn.initialize(Branches(), "lecun")


def test_torchs_transformer_layers_are_known():
    done = ts.nn.initialize(nn.TransformerEncoderLayer(8, 2, 16, activation="gelu"), "xavier")
    assert gains(done)["linear2.weight"] == pytest.approx(1.5335, abs=1e-4)
    assert gains(done)["linear1.weight"] == gains(done)["self_attn.out_proj.weight"] == 1
    assert done.left == {}


def test_names_go_before_kinds_later_names_before_earlier_and_near_kinds_before_far():
    net = nn.Sequential(nn.Linear(4, 4), nn.Conv1d(4, 4, 3, padding=1), nn.Linear(4, 4), nn.Linear(4, 4))
    rules = {
        "*": "zeros",
        "2": nn.init.eye_,
        "3": nn.init.ones_,
        "3.bias": lambda bias: bias.fill_(-2.0),
        nn.Linear: "orthogonal",
        nn.Module: "lecun",
    }
    done = ts.nn.initialize(net, rules)
    assert not net[0].weight.any()
    assert not net[1].weight.any()
    assert torch.equal(net[2].weight, torch.eye(4))
    assert torch.equal(net[3].weight, torch.ones(4, 4))
    assert torch.equal(net[3].bias, torch.full((4,), -2.0))
    assert [each.rule for each in done.tensors if each.name.startswith("2")] == ["eye_", "zeros"]
    ts.nn.initialize(net, {nn.Conv1d: nn.init.dirac_, nn.Module: "zeros"})
    assert net[1].weight.sum() == 4
    assert not net[3].weight.any()


def test_only_what_a_rule_matches_is_touched_and_the_rest_is_listed():
    net = Net()
    before = {name: parameter.clone() for name, parameter in net.named_parameters()}
    done = ts.nn.initialize(net, {"head": "zeros"})
    changed = [name for name, parameter in net.named_parameters() if not torch.equal(parameter, before[name])]
    assert changed == ["head.weight", "head.bias"]
    assert done.left["stem.weight"] == "no rule matches"
    assert set(done.left) | {"head.weight", "head.bias"} == set(before)


def test_a_residual_branch_can_end_in_zero_or_small():
    net = Net()
    with torch.no_grad():
        net.norm.running_mean.fill_(3)
    ts.nn.initialize(net, "lecun", scale={"norm": 0.0, "h*": 0.5}, generator=seeded())
    assert not net.norm.weight.any()
    assert not net.norm.running_mean.any()
    other = Net()
    ts.nn.initialize(other, "lecun", generator=seeded())
    torch.testing.assert_close(net.head.weight, other.head.weight * 0.5)
    assert torch.equal(other.norm.weight, torch.ones(8))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 40, padding_idx=3)
        self.head = nn.Linear(40, 50)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        return self.head(self.embedding(tokens))


def test_a_tied_weight_is_initialised_once_as_the_matrix_and_its_padding_row_stays_zero():
    net = Tied()
    done = ts.nn.initialize(net, "lecun", generator=seeded())
    assert net.head.weight is net.embedding.weight
    assert done.tied == {"embedding.weight": "head.weight"}
    assert not net.embedding.weight[3].any()
    assert net.head.weight.std().item() == close_to(40**-0.5, 1900)
    ts.nn.initialize(net, {"embedding": "lecun", nn.Linear: "zeros"}, generator=seeded())
    assert net.head.weight.std().item() == close_to(1, 1900)


def test_frozen_weights_are_left_unless_they_are_named():
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    net[0].requires_grad_(False)
    before = net[0].weight.clone()
    assert ts.nn.initialize(net, "lecun").left == {"0.weight": "frozen", "0.bias": "frozen"}
    assert torch.equal(net[0].weight, before)
    ts.nn.initialize(net, {"0": "zeros"})
    assert not net[0].weight.any()
    assert not net[0].weight.requires_grad


@pytest.mark.parametrize("training", [True, False])
def test_normalised_weights_are_set_through_their_norm(training):
    net = nn.Sequential(nn.Linear(30, 40), nn.Linear(40, 30)).train(training)
    plain = nn.Sequential(nn.Linear(30, 40), nn.Linear(40, 30))
    ts.nn.initialize(plain, "lecun", generator=seeded())
    ts.nn.add_weight_norm(net, "0")
    ts.nn.add_spectral_norm(net, "1")
    done = ts.nn.initialize(net, "lecun", generator=seeded())
    torch.testing.assert_close(net[0].weight, plain[0].weight)
    largest = torch.linalg.matrix_norm(plain[1].weight, 2)
    net.eval()
    torch.testing.assert_close(net[1].weight, plain[1].weight / largest, rtol=0.1, atol=0.01)
    assert done.left == {}
    with pytest.raises(ts.OptionError, match=r"0\.weight became NaN"):
        ts.nn.initialize(net, "zeros")


def test_a_weight_that_cannot_be_set_is_refused():
    class Square(nn.Module):
        def forward(self, weight):
            return weight.square()

    net = nn.Linear(2, 2)
    nn.utils.parametrize.register_parametrization(net, "weight", Square())
    with pytest.raises(ts.OptionError, match=r"computed by Square, which can't be inverted"):
        ts.nn.initialize(net, "lecun")


@given(
    rule=st.sampled_from(["kaiming", "xavier_uniform", "orthogonal", "truncated_normal"]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
    seed=st.integers(0, 999),
)
@settings(deadline=None, max_examples=20)
def test_a_generator_gives_the_same_weights_in_every_type_whatever_torchs_own_stream_did(rule, dtype, seed):
    one, other = Net().to(dtype), Net()
    ts.nn.initialize(one, rule, generator=seeded(seed))
    torch.rand(7)
    ts.nn.initialize(other, rule, generator=seeded(seed))
    assert all(torch.equal(a, b.to(dtype)) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_functions_draw_from_the_generator_too_and_from_torchs_stream_without_one():
    nets = [nn.Linear(3, 3) for _ in range(2)]
    state = torch.get_rng_state()
    for net in nets:
        ts.nn.initialize(net, nn.init.normal_, generator=seeded())
    assert torch.equal(nets[0].weight, nets[1].weight)
    assert torch.equal(torch.get_rng_state(), state)
    ts.nn.initialize(nets[1], nn.init.normal_)
    assert not torch.equal(nets[0].weight, nets[1].weight)


def test_truncated_weights_stay_within_two_standard_deviations():
    net = nn.ModuleList([nn.Embedding(200, 50), nn.Linear(50, 200)])
    ts.nn.initialize(net, "truncated_normal", generator=seeded())
    assert net[1].weight.abs().max() <= 0.04
    assert net[0].weight.std().item() == close_to(0.02, 10_000)


# ------------------------------------------------------------------ bad input


def test_rules_that_are_unknown_or_match_nothing_are_refused_with_what_there_is():
    cases = {
        r"No initialisation is called 'kaimin'\. Did you mean 'kaiming'": "kaimin",
        r"got <class 'torch.nn.*Linear'>": {nn.Linear: nn.Linear},
        "Net has no layer of kind LSTM": {nn.LSTM: "lecun"},
        r"No layer is called 'haed'\. Did you mean 'head'": {"haed": "lecun"},
        r"No tensor.* is called 'heads\.bias'.*'head\.bias'": {"heads.bias": "zeros"},
        r"'lecun' is a distribution of weights and head\.bias is a bias": {"head.bias": "lecun"},
    }
    for message, rules in cases.items():
        with pytest.raises(ts.OptionError, match=message):
            ts.nn.initialize(Net(), rules)
    with pytest.raises(ts.OptionError, match="No layer is called 'bn'"):
        ts.nn.initialize(Net(), "lecun", scale={"bn": 0.0})
    with pytest.raises(ts.OptionError, match="no shape yet"):
        ts.nn.initialize(nn.LazyLinear(3), "lecun")
    with pytest.raises(ts.OptionError, match="has no memory yet"):
        ts.nn.initialize(nn.Linear(2, 2, device="meta"), "lecun")
    with pytest.raises(ts.OptionError, match="weight is complex"):
        ts.nn.initialize(nn.Linear(2, 2, dtype=torch.complex64), "lecun")
    with pytest.raises(ts.OptionError, match=r"net\.module"):
        ts.nn.initialize(type("Learner", (), {"module": Net()})(), "lecun")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda net: ts.nn.initialize(net, {}), "got none at all"),
        (lambda net: ts.nn.initialize(net, {0: "lecun"}), "by kind .*; got 0"),
        (
            lambda net: ts.nn.initialize(nn.ReLU(), "lecun"),
            "ReLU has no layer whose weights can be initialised",
        ),
        (
            lambda net: ts.nn.initialize(nn.Linear(2, 2), {"hea.*": "zeros"}),
            r"No layer is called 'hea\.\*'.*There are none",
        ),
        (lambda net: ts.nn.initialize(net, "lecun", generator=3), r"generator=3: write torch\.Generator"),
        (lambda net: ts.nn.initialize(net, "lecun", scale=2.0), r"scale=2\.0: write a factor for each"),
        (lambda net: ts.nn.initialize(net, "lecun", scale={"0": "1"}), "was given a str"),
        (lambda net: ts.nn.initialize(net, "lecun", scale={"0": math.nan}), r"scale\['0'\]=nan"),
        (lambda net: ts.nn.initialize(net, "kaiming", activation=nn.ReLU), "instances or functions"),
        (lambda net: ts.nn.initialize(net, "kaiming", activation="relu"), "instances or functions"),
        (
            lambda net: ts.nn.initialize(net, lambda weight: weight + 1),
            "returned a new tensor, which nobody uses",
        ),
    ],
)
def test_what_would_do_nothing_or_harm_is_refused_and_the_weights_stay(call, message):
    net = nn.Sequential(nn.Linear(2, 3), nn.Tanh())
    before = net[0].weight.detach().clone()
    with pytest.raises(ts.OptionError, match=message):
        call(net)
    assert torch.equal(before, net[0].weight)


def test_the_report_says_what_was_done_and_not_what_the_rule_is_called():
    net = nn.Sequential(nn.Embedding(3, 2), nn.LSTM(2, 2), nn.LayerNorm(2))
    done = {each.name: each.rule for each in ts.nn.initialize(net, "xavier").tensors}
    assert done["0.weight"] == "normal"
    assert done["1.weight_ih_l0"] == "xavier"
    assert done["1.weight_hh_l0"] == "orthogonal"
    assert done["1.bias_ih_l0"] == "zeros, forget gate ones"
    assert done["2.weight"] == "ones"
    assert {each.rule for each in ts.nn.initialize(net[2], "zeros").tensors} == {"zeros"}


@pytest.mark.parametrize("wrap", [nn.DataParallel, lambda net: torch.compile(net, backend="eager")])
def test_a_wrapped_model_has_the_gains_of_the_model_in_it(wrap):
    net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))
    expected = [each.gain for each in ts.nn.initialize(net, "kaiming").tensors]
    assert expected == [each.gain for each in ts.nn.initialize(wrap(net), "kaiming").tensors]


def test_reading_the_graph_leaves_buffers_that_the_forward_writes_to():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 2)
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.calls += 1
            return self.layer(x)

    net = Counting()
    ts.nn.initialize(net, "kaiming")
    assert net.calls == 0


def test_running_statistics_are_reset_of_norms_without_weights_too():
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2, affine=False))
    net(torch.randn(4, 2) + 9)
    moved = net[1].running_mean.clone()
    ts.nn.initialize(net, {nn.Linear: "kaiming"})
    assert torch.equal(moved, net[1].running_mean)
    ts.nn.initialize(net, "kaiming")
    assert not net[1].running_mean.any()


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_a_layer_without_inputs_has_nothing_to_draw():
    assert ts.nn.initialize(nn.Linear(0, 2), "kaiming").tensors[0].shape == (2, 0)
