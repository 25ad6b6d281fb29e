# SPDX-License-Identifier: Apache-2.0
"""The penalty against closed forms and finite differences; what it leaves alone; the engine; what bad input gets."""

import math
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import truestep as ts
from truestep.engine.learner import Learner, LearnerOptions
from truestep.engine.shared_context import LearnerContext

SHAPES = st.lists(st.integers(1, 4), min_size=0, max_size=4).map(tuple)
DTYPES = st.sampled_from([torch.float32, torch.float64])
SIDES = st.sampled_from(["two", "one"])


def drawn(seed, *shape, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def charge(norm, target, sides):
    excess = norm - target
    return (excess.clamp(min=0) if sides == "one" else excess).square()


@given(SHAPES, st.integers(1, 5), DTYPES, st.floats(0, 3), SIDES, st.integers(0, 99))
@settings(deadline=None, max_examples=60)
def test_a_linear_critics_penalty_is_its_closed_form_at_every_place(shape, batch, dtype, target, sides, seed):
    weight = drawn(seed, *shape, dtype=dtype)
    real, fake = drawn(seed + 1, batch, *shape, dtype=dtype), drawn(seed + 2, batch, *shape, dtype=dtype)
    expected = charge(weight.norm(), target, sides).expand(batch)
    for at in ("interpolates", "real", "fake"):
        critic = lambda x: (x * weight).reshape(batch, -1).sum(1)
        penalty = ts.gradient_penalty(critic, real, fake, at=at, target=target, sides=sides)
        assert (penalty.shape, penalty.dtype) == ((batch,), dtype)
        torch.testing.assert_close(penalty, expected)


@given(SHAPES, st.integers(1, 5), DTYPES, st.floats(0, 3), SIDES, st.integers(0, 99))
@settings(deadline=None, max_examples=60)
def test_a_quadratic_critics_penalty_is_its_closed_form_for_each_example(
    shape, batch, dtype, target, sides, seed
):
    size = math.prod(shape)
    matrix, slope = drawn(seed, size, size, dtype=dtype), drawn(seed + 1, size, dtype=dtype)
    real = drawn(seed + 2, batch, *shape, dtype=dtype)
    rows = real.reshape(batch, size)
    gradient = rows @ (matrix + matrix.T) / 2 + slope
    expected = charge(gradient.norm(dim=1), target, sides)

    def critic(x):
        x = x.reshape(batch, size)
        return (((x @ matrix) * x).sum(1) / 2 + x @ slope).unsqueeze(1)

    penalty = ts.gradient_penalty(critic, real, at="real", target=target, sides=sides)
    torch.testing.assert_close(penalty, expected, rtol=2e-4, atol=2e-4)


@given(SHAPES, SHAPES, st.integers(1, 4), st.integers(0, 99))
@settings(deadline=None, max_examples=40)
def test_several_inputs_count_as_one_vector(first, second, batch, seed):
    weights = drawn(seed, *first), drawn(seed + 1, *second)
    sides = [
        tuple(drawn(seed + number, batch, *shape) for number, shape in ((start, first), (start + 1, second)))
        for start in (2, 4)
    ]
    critic = lambda x, y: (
        (x * weights[0]).reshape(batch, -1).sum(1) + (y * weights[1]).reshape(batch, -1).sum(1)
    )
    norm = torch.cat([weight.reshape(-1) for weight in weights]).norm()
    torch.testing.assert_close(ts.gradient_penalty(critic, *sides), (norm - 1).square().expand(batch))


class Smooth(nn.Module):
    """A twice differentiable critic of any input, whose penalty depends on every parameter but the last bias."""

    def __init__(self, size, outputs=()):
        super().__init__()
        self.outputs = outputs
        self.first = nn.Linear(size, 3, dtype=torch.float64)
        self.last = nn.Linear(3, math.prod(outputs), dtype=torch.float64)

    def forward(self, x):
        return self.last(self.first(x.reshape(len(x), -1)).tanh()).reshape(len(x), *self.outputs)


@given(SHAPES, st.sampled_from([(), (1,), (1, 2, 2)]), SIDES, st.floats(0, 2), st.integers(0, 99))
@settings(deadline=None, max_examples=25)
def test_penalty_and_its_gradient_are_those_of_finite_differences(shape, outputs, sides, target, seed):
    torch.manual_seed(seed)
    critic = Smooth(math.prod(shape), outputs)
    real = drawn(seed, 3, *shape)

    def by_differences():
        step, rows = 1e-5, real.reshape(3, -1)
        score = lambda x: critic(x.reshape(real.shape)).reshape(3, -1).mean(1)
        moves = step * torch.eye(rows.shape[1], dtype=torch.float64)
        slopes = torch.stack([(score(rows + move) - score(rows - move)) / (2 * step) for move in moves], 1)
        return charge(slopes.norm(dim=1), target, sides)

    penalty = ts.gradient_penalty(critic, real, at="real", target=target, sides=sides)
    expected = by_differences()
    torch.testing.assert_close(penalty, expected, rtol=1e-6, atol=1e-8)
    kept = (expected.detach().sqrt() > 1e-3).double()  # next to the kink a difference quotient means nothing
    gradients = torch.autograd.grad((penalty * kept).sum(), list(critic.parameters()), allow_unused=True)
    by_graph = torch.autograd.grad((expected * kept).sum(), list(critic.parameters()), allow_unused=True)
    for got, true in zip(gradients[:3], by_graph[:3], strict=True):
        torch.testing.assert_close(got, true, rtol=1e-4, atol=1e-6)


def test_points_lie_between_with_one_weight_for_all_of_an_example():
    seen = []
    critic = lambda x, y: seen.extend([x, y]) or (x.square().flatten(1).sum(1) + y.sum(1))
    zeros, ones = (torch.zeros(50, 2, 3), torch.zeros(50, 4)), (torch.ones(50, 2, 3), torch.ones(50, 4))
    torch.manual_seed(0)
    weights = torch.rand(50)
    torch.manual_seed(0)
    ts.gradient_penalty(critic, ones, zeros)
    assert torch.equal(weights[:, None, None].expand(50, 2, 3), seen[0])
    assert torch.equal(weights[:, None].expand(50, 4), seen[1])


@pytest.mark.parametrize("conditions", ["tensor", "tuple", "dict"])
def test_conditions_reach_the_critic_untouched(conditions):
    labels, mask = torch.tensor([1, 2]), torch.tensor([True, False])
    got = []

    def critic(x, label, mask=None):
        got.extend([label, mask])
        return x.sum(1)

    given_ = {"tensor": labels, "tuple": (labels, mask), "dict": {"label": labels, "mask": mask}}[conditions]
    ts.gradient_penalty(critic, torch.ones(2, 3), torch.zeros(2, 3), conditions=given_)
    assert got[0] is labels
    assert got[1] is (None if conditions == "tensor" else mask)


def test_a_map_of_patches_counts_as_the_mean_of_its_patches():
    critic = nn.Conv2d(1, 1, 3, padding=1)
    one = ts.gradient_penalty(
        lambda x: critic(x).mean((1, 2, 3)), torch.ones(2, 1, 5, 5), at="real", target=0
    )
    torch.testing.assert_close(one, ts.gradient_penalty(critic, torch.ones(2, 1, 5, 5), at="real", target=0))


def test_complex_inputs_have_the_norm_of_their_real_and_imaginary_slopes():
    weight = torch.randn(3, dtype=torch.complex128)
    critic = lambda x: (x.conj() * weight).real.sum(1)
    real, fake = (torch.randn(4, 3, dtype=torch.complex128) for _ in range(2))
    expected = (torch.view_as_real(weight).norm() - 1).square().expand(4)
    torch.testing.assert_close(ts.gradient_penalty(critic, real, fake), expected)


@pytest.mark.parametrize("target", [0.0, 1.0])
@pytest.mark.parametrize("sides", ["one", "two"])
def test_a_zero_gradient_has_no_nan_gradient(target, sides):
    critic = nn.Linear(3, 1)
    nn.init.zeros_(critic.weight)
    inputs = (torch.ones(2, 3), torch.ones(2, 3))
    both = lambda x, y: critic(x) + critic(y)
    penalty = ts.gradient_penalty(both, inputs, at="real", target=target, sides=sides)
    penalty.sum().backward()
    assert penalty.tolist() == [charge(torch.zeros(()), target, sides)] * 2
    assert torch.equal(torch.zeros(1, 3), critic.weight.grad)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_under_autocast_it_is_the_penalty_of_full_precision_to_the_bit(dtype):
    """Slopes of 1e-9 are zero in float16, and a plain penalty under autocast loses them."""
    critic = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    nn.init.normal_(critic[2].weight, std=1e-9)
    real = torch.randn(6, 4)

    def gradient_of(penalty):
        critic.zero_grad()
        penalty.sum().backward()
        return [penalty, *(p.grad for p in critic.parameters() if p.grad is not None)]

    expected = gradient_of(ts.gradient_penalty(critic, real, at="real", target=0))
    with torch.autocast("cpu", dtype):
        half = real.to(dtype)
        got = ts.gradient_penalty(critic, real, at="real", target=0)
        assert ts.gradient_penalty(critic, half, half).dtype == torch.float32
        labelled = ts.gradient_penalty(lambda x, y: critic(x + y), real, at="real", conditions=half)
        assert labelled.dtype == torch.float32
    assert all(map(torch.equal, expected, gradient_of(got)))
    assert float(expected[1].abs().max()) > 0
    with torch.autocast("cpu", torch.float16):
        z = real.clone().requires_grad_()
        (plain,) = torch.autograd.grad(critic(z).sum(), z, create_graph=True)
    assert not plain.any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_critic_with_half_precision_weights_gets_a_float32_penalty(dtype):
    weight = torch.randn(9).to(dtype)
    inputs = torch.randn(4, 9).to(dtype)
    penalty = ts.gradient_penalty(lambda x: x @ weight, inputs, inputs)
    assert penalty.dtype == torch.float32
    torch.testing.assert_close(penalty, (weight.float().norm() - 1).square().expand(4))


def everything(module):
    return {
        "tensors": {
            name: (id(tensor), tensor.detach().clone())
            for name, tensor in (*module.named_parameters(), *module.named_buffers())
        },
        "grad": {name: p.grad for name, p in module.named_parameters()},
        "flags": [(p.requires_grad, p._version) for p in module.parameters()],
        "modes": [part.training for part in module.modules()],
        "hooks": [
            (list(part._forward_hooks), list(part._forward_pre_hooks), list(part._backward_hooks))
            for part in module.modules()
        ],
        "global": list(torch.nn.modules.module._global_forward_pre_hooks),
    }


def assert_same(first, second):
    for name, (number, tensor) in first["tensors"].items():
        assert (number, name) == (second["tensors"][name][0], name)
        assert torch.equal(tensor, second["tensors"][name][1])
    assert {key: first[key] for key in first if key != "tensors"} == {
        key: second[key] for key in second if key != "tensors"
    }


def stateful_critic(spectral_norm):
    return nn.Sequential(
        spectral_norm(nn.Conv1d(2, 4, 3, padding=1)),
        nn.InstanceNorm1d(4, track_running_stats=True),
        nn.LeakyReLU(0.2, inplace=True),
        nn.Flatten(),
        nn.Dropout(0.1),
        nn.Linear(20, 1),
    )


@pytest.mark.filterwarnings("ignore:`torch.nn.utils.spectral_norm` is deprecated:FutureWarning")
@pytest.mark.parametrize("spectral_norm", [nn.utils.parametrizations.spectral_norm, nn.utils.spectral_norm])
@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("fails", [False, True])
def test_the_critic_is_left_as_it_was_also_by_a_failure(spectral_norm, wrapped, fails):
    critic = stateful_critic(spectral_norm)
    critic[5].bias.requires_grad_(False)
    critic[4].eval()
    handle = critic[0].register_forward_hook(lambda *_: None)
    called = (lambda x: 1 * critic(x)) if wrapped else critic
    inputs = torch.randn(3, 2, 5), torch.randn(3, 2, 5, requires_grad=True)
    before = everything(critic)
    if fails:
        with pytest.raises(ts.LossError, match="not a mean over them"):
            ts.gradient_penalty(lambda x: called(x).mean(), *inputs)
        assert_same(before, everything(critic))
    else:
        penalty = ts.gradient_penalty(called, *inputs)
        assert_same(before, everything(critic))
        penalty.mean().backward()  # the buffers of the forward are still there for the graph
        assert inputs[1].grad is None
    handle.remove()


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("how", ["training", "no statistics"])
def test_batch_normalisation_that_mixes_examples_is_refused_by_name(wrapped, how):
    norm = nn.BatchNorm1d(4, track_running_stats=how == "training")
    critic = nn.Sequential(nn.Linear(3, 4), norm, nn.Linear(4, 1))
    if how != "training":
        critic.eval()
    before = everything(critic)
    called = (lambda x: 1 * critic(x)) if wrapped else critic
    named = re.escape("BatchNorm1d(4" if wrapped else "'1' (BatchNorm1d)")
    with pytest.raises(ts.LossError, match=f"{named}.*mixes the examples.*GroupNorm"):
        ts.gradient_penalty(called, torch.randn(5, 3), torch.randn(5, 3))
    assert_same(before, everything(critic))


def test_batch_normalisation_in_evaluation_mode_is_fine():
    critic = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 1)).eval()
    slope = (critic[1].weight * critic[0].weight / (critic[0].running_var + critic[0].eps).sqrt()).norm()
    penalty = ts.gradient_penalty(critic, torch.randn(4, 3), torch.randn(4, 3))
    torch.testing.assert_close(penalty, (slope - 1).square().expand(4))


def test_attention_can_be_penalised():
    """Fused attention can't be differentiated twice."""
    critic = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    ts.gradient_penalty(lambda x: critic(x).mean((1, 2)), torch.randn(3, 5, 8), at="real").sum().backward()
    assert all(bool(p.grad.isfinite().all()) for p in critic.parameters() if p.grad is not None)


def test_a_compiled_critic_is_penalised_as_its_original():
    critic = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    compiled = torch.compile(critic, backend="aot_eager")
    inputs = torch.randn(5, 3)
    compiled(inputs)
    expected = ts.gradient_penalty(critic, inputs, at="real")
    got = ts.gradient_penalty(compiled, inputs, at="real")
    assert torch.equal(expected, got)
    got.sum().backward()


def learner_of(module, context, **options):
    make = lambda p: torch.optim.SGD(p, lr=0.1)
    return Learner(module, make, LearnerOptions(name=f"learner{len(context.learners)}", **options), context)


@pytest.mark.parametrize("precision", ["float32", "float64", "bf16-mixed", "fp16-mixed", "bf16"])
def test_an_update_with_a_penalty_is_the_same_however_it_is_split(precision):
    def train(micro_batch):
        torch.manual_seed(0)
        context = LearnerContext(torch.device("cpu"))
        options = {"precision": precision} | ({"loss_scale": 64.0} if precision == "fp16-mixed" else {})
        critic = learner_of(nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1)), context, **options)
        generator = learner_of(nn.Linear(2, 3), context, precision=precision)

        def loss(batch):
            real, noise = batch
            fake = generator(noise)
            penalty = ts.gradient_penalty(critic, real, fake, at="real", target=0.2)
            gap = (critic(fake) - critic(real)).squeeze(1)
            return ts.weighted(gap + 10 * penalty, penalty=penalty)

        batch = (torch.randn(8, 3), torch.randn(8, 2))
        update = critic.update(loss, batch, micro_batch=micro_batch)
        assert all(p.grad is None for p in generator._parts.weights.parameters)
        assert all(p.requires_grad for p in generator._parts.weights.parameters)
        return torch.cat([p.double().flatten() for p in critic._parts.weights.stepped]), float(
            update.metrics["penalty"]
        )

    whole, penalty = train(None)
    tolerance = {"float32": 1e-6, "float64": 1e-13}.get(precision, 2e-2)
    for micro_batch in (3, 1):
        parts, metric = train(micro_batch)
        torch.testing.assert_close(whole, parts, rtol=tolerance, atol=tolerance)
        assert metric == pytest.approx(penalty, rel=max(tolerance, 1e-6))


def test_interpolates_follow_the_engines_keyed_stream():
    context = LearnerContext(torch.device("cpu"), seed=5)
    critic = learner_of(nn.Linear(3, 1), context)
    seen = []

    def loss(real):
        watch = lambda x: seen.append(x.detach().clone()) or critic(x)
        return ts.gradient_penalty(watch, real, torch.zeros_like(real))

    for _ in range(2):
        context.advance(7)
        critic.update(loss, torch.ones(4, 3))
        torch.rand(3)  # what others draw from the global stream changes nothing
    assert torch.equal(seen[0], seen[1])


def test_a_compiled_learner_says_that_a_penalty_can_not_be_compiled():
    context = LearnerContext(torch.device("cpu"))
    critic = learner_of(nn.Linear(3, 1), context, compile=True)
    with pytest.raises(ts.OptionError, match="does not support double backward"):
        critic.update(lambda x: ts.gradient_penalty(critic, x, at="real"), torch.ones(4, 3))


SCORE = nn.Linear(3, 1)
WEIGHT = torch.ones((), requires_grad=True)
X = torch.ones(4, 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ts.gradient_penalty(SCORE, X, torch.ones(3, 3)), r"real has shapes \[\(4, 3\)\] and fake"),
        (lambda: ts.gradient_penalty(SCORE, X, torch.ones(4, 1)), "make as many as the batch holds"),
        (lambda: ts.gradient_penalty(SCORE, X), "fake is None"),
        (lambda: ts.gradient_penalty(SCORE, None, X), "real is None"),
        (lambda: ts.gradient_penalty(SCORE, X.long(), X), r"real holds torch.int64.*labels as conditions="),
        (lambda: ts.gradient_penalty(SCORE, [1.0], X), "real holds float, which has no derivative"),
        (lambda: ts.gradient_penalty(SCORE, (), ()), "real is an empty tuple"),
        (lambda: ts.gradient_penalty(SCORE, (X, X[:2]), (X, X)), "one row per example each, got shapes"),
        (lambda: ts.gradient_penalty(SCORE, torch.tensor(1.0), at="real"), "one row per example each"),
        (lambda: ts.gradient_penalty(SCORE, X, X.to("meta")), "several devices"),
        (lambda: ts.gradient_penalty(lambda x: [x], X, X), "returned a list.*one penalty for each scale"),
        (lambda: ts.gradient_penalty(lambda x: x.sum(), X, X), r"returned shape \(\) for 4 examples"),
        (lambda: ts.gradient_penalty(lambda x: x[:2], X, X), r"returned shape \(2, 3\) for 4 examples"),
        (lambda: ts.gradient_penalty(lambda x: x.detach(), X, X), "does not depend on its inputs"),
        (lambda: ts.gradient_penalty(lambda x: WEIGHT.expand(4), X, X), "does not depend on its inputs"),
        (
            lambda: ts.gradient_penalty(SCORE, X.to_sparse(), X),
            r"real holds torch.float32 \(torch.sparse_coo\)",
        ),
        (lambda: ts.gradient_penalty(SCORE, X.to(torch.float8_e5m2), X), "real holds torch.float8_e5m2"),
        (
            lambda: torch.func.vmap(lambda x: ts.gradient_penalty(SCORE, x, x))(X[None]),
            "a transform of torch.func",
        ),
        (lambda: torch.no_grad()(ts.gradient_penalty)(SCORE, X, X), r"under torch.no_grad\(\)"),
        (lambda: torch.inference_mode()(ts.gradient_penalty)(SCORE, X, X), "no gradient to penalise"),
    ],
)
def test_bad_input_gets_a_loss_error(call, message):
    with pytest.raises(ts.LossError, match=message):
        call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ts.gradient_penalty(None, X, X), "a module or a function of the inputs, got NoneType"),
        (lambda: ts.gradient_penalty(SCORE, X, X, at="between"), "There are: fake, interpolates, real"),
        (lambda: ts.gradient_penalty(SCORE, X, X, sides="both"), "sides='both'"),
        (lambda: ts.gradient_penalty(SCORE, X, X, target=-1), r"target=-1\): give at least 0"),
        (lambda: ts.gradient_penalty(SCORE, X, X, target="2"), r"target='2'\) was given a str"),
        (lambda: ts.gradient_penalty(SCORE, X, X, target=True), r"target=True\) was given a bool"),
        (lambda: ts.gradient_penalty(SCORE, X, X, target=math.nan), r"target=nan\): give at least 0"),
    ],
)
def test_options_that_mean_nothing_are_refused(call, message):
    with pytest.raises(ts.OptionError, match=message):
        call()


def test_a_critic_whose_first_layer_works_in_place_is_penalised_and_its_input_left():
    critic = nn.Sequential(nn.LeakyReLU(0.5, inplace=True), nn.Linear(3, 1))
    x = torch.tensor([[1.0, -1.0, 2.0]])
    slopes = critic[1].weight * torch.tensor([1.0, 0.5, 1.0])
    got = ts.gradient_penalty(critic, x, at="real", target=0)
    torch.testing.assert_close(got, slopes.norm(dim=1).square())
    assert x.tolist() == [[1.0, -1.0, 2.0]]


def test_a_recurrent_critic_is_penalised_on_a_packed_sequence():
    layer, x = nn.GRU(3, 2, batch_first=True).double(), torch.randn(2, 4, 3, dtype=torch.float64)

    def critic(x):
        return layer(nn.utils.rnn.pack_padded_sequence(x, [4, 2], batch_first=True))[1][0]

    alone = [
        torch.autograd.functional.jacobian(lambda row, end=end: layer(row[None, :end])[1].mean(), row).norm()
        for row, end in zip(x, [4, 2], strict=True)
    ]
    got = ts.gradient_penalty(critic, x, at="real", target=0)
    torch.testing.assert_close(got.detach(), torch.stack(alone).square())


def test_on_the_device_meta_it_has_its_shape():
    x = torch.empty(4, 3, device="meta")
    assert ts.gradient_penalty(nn.Linear(3, 1, device="meta"), x, x).shape == (4,)


def test_an_input_that_the_critic_does_not_use_counts_nothing():
    both = ts.gradient_penalty(lambda x, unused: SCORE(x), (X, X), at="real")
    torch.testing.assert_close(both, ts.gradient_penalty(SCORE, X, at="real"))


def test_no_examples_have_no_penalties():
    assert ts.gradient_penalty(SCORE, torch.ones(0, 3), torch.ones(0, 3)).shape == (0,)


def test_its_value_can_be_looked_at_in_evaluation():
    with torch.inference_mode(), torch.inference_mode(False), torch.enable_grad():
        assert ts.gradient_penalty(SCORE, X, X).shape == (4,)


@pytest.mark.parametrize(
    ("further", "said"),
    [
        ((10.0,), "takes no factor.* 10 \\* ts.gradient_penalty"),
        ((10,), "takes no factor.* 10 \\* ts.gradient_penalty"),
        ((2.5, "cpu"), "takes no factor.* 2.5 \\* ts.gradient_penalty"),
        ((torch.arange(4),), "conditions=..."),
        (("real",), "conditions=..."),
        ((True,), "conditions=..."),
    ],
)
def test_a_number_by_place_is_the_factor_before_the_penalty(further, said):
    rows = torch.randn(4, 2)
    with pytest.raises(ts.OptionError, match=said):
        ts.gradient_penalty(torch.nn.Linear(2, 1), rows, rows, *further)
