# SPDX-License-Identifier: Apache-2.0
"""Every kind of clipping against its closed form, and what all kinds promise."""

import math
from functools import partial
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.clips import EXAMPLES
from torch import nn

import truestep as ts
from truestep.engine import clipping
from truestep.engine.clipping import clip_from_option
from truestep.engine.clipping.base import Gradients, total_gradient_norm

SHAPES = {"conv.weight": (4, 3, 2, 2), "fc.weight": (5, 7), "fc.bias": (5,), "gain": ()}


def gradients_of(scale=1.0, dtype=torch.float32, seed=0):
    draw = torch.Generator().manual_seed(seed)
    tensors = [(torch.randn(shape, generator=draw) * scale).to(dtype) for shape in SHAPES.values()]
    parameters = [torch.randn(shape, generator=draw).to(dtype) for shape in SHAPES.values()]
    return Gradients(list(SHAPES), parameters, tensors)


def clipped(clip, gradients):
    clip.apply(gradients, total_gradient_norm(gradients.tensors, clip.norm_type))
    return gradients.tensors


def flat(tensors):
    return torch.cat([tensor.double().reshape(-1) for tensor in tensors])


def test_every_file_of_a_kind_has_a_public_name_and_a_row_with_an_example_in_the_page():
    shared = {"__init__", "base", "standalone"}
    files = {each.stem for each in Path(clipping.__file__).parent.glob("*.py")} - shared
    public = [getattr(ts, name) for name in ts.__all__]
    kinds = {each for each in public if isinstance(each, type) and issubclass(each, ts.Clip)}
    assert files == {each.__module__.rpartition(".")[2] for each in kinds - {ts.Clip}}, (
        "truestep/__init__.pyi"
    )
    assert set(map(type, EXAMPLES.values())) == kinds - {ts.Clip}, "docs/choose-clip.md"


@pytest.mark.parametrize("norm_type", [1, 2, 3, 1.5, math.inf])
@pytest.mark.parametrize("max_norm", [1e-6, 1e-3, 1.0, 1e6])
def test_the_norm_of_all_gradients_is_at_most_the_largest(norm_type, max_norm, same):
    before = gradients_of()
    true = torch.linalg.vector_norm(flat(before.tensors), norm_type)
    assert float(total_gradient_norm(before.tensors, norm_type)) == pytest.approx(float(true), rel=1e-6)
    expected = [tensor.clone().requires_grad_() for tensor in before.tensors]
    for tensor, gradient in zip(expected, before.tensors, strict=True):
        tensor.grad = gradient.clone()
    nn.utils.clip_grad_norm_(expected, max_norm, norm_type, foreach=True)
    after = clipped(ts.ClipNorm(max_norm, norm_type), before)
    assert torch.linalg.vector_norm(flat(after), norm_type) <= max_norm * (1 + 1e-6)
    assert same([tensor.grad for tensor in expected], after)


@given(st.floats(1e-9, 1e3), st.floats(1e-9, 1e3))
def test_a_norm_clip_is_torchs_to_the_bit(same, scale, max_norm):
    before = gradients_of(scale)
    leaves = [tensor.clone().requires_grad_() for tensor in before.tensors]
    for leaf, gradient in zip(leaves, before.tensors, strict=True):
        leaf.grad = gradient.clone()
    nn.utils.clip_grad_norm_(leaves, max_norm, foreach=True)
    assert same([leaf.grad for leaf in leaves], clipped(ts.ClipNorm(max_norm), before))


def test_values_are_clamped_one_by_one():
    before = gradients_of()
    expected = [tensor.clamp(-0.3, 0.3) for tensor in before.tensors]
    assert all(map(torch.equal, expected, clipped(ts.ClipValue(0.3), before)))


def nfnet_units(tensor):
    """unitwise_norm of the paper's published code, written out."""
    if tensor.ndim <= 1:
        return tensor.double().norm().expand_as(tensor)
    return tensor.double().flatten(1).norm(dim=1).reshape(-1, *[1] * (tensor.ndim - 1)).expand_as(tensor)


@pytest.mark.parametrize("ratio", [0.001, 0.01, 1.0])
def test_adaptive_clipping_is_the_formula_of_nfnets(ratio):
    before = gradients_of()
    expected = []
    for gradient, parameter in zip(before.tensors, before.parameters, strict=True):
        largest = nfnet_units(parameter).clamp(min=1e-3) * ratio
        size = nfnet_units(gradient)
        shrunk = gradient.double() * largest / size.clamp(min=1e-6)
        expected.append(torch.where(size > largest, shrunk, gradient.double()))
    for true, got in zip(expected, clipped(ts.ClipAdaptive(ratio), before), strict=True):
        assert torch.allclose(true, got.double(), rtol=1e-5, atol=0)


def test_adaptive_clipping_lets_zero_weights_start_and_skips_by_name():
    gradients = Gradients(["head.weight", "x"], [torch.zeros(2, 2)] * 2, [torch.ones(2, 2), torch.ones(2, 2)])
    head, x = clipped(ts.ClipAdaptive(0.01, skip=("head.",)), gradients)
    assert torch.equal(torch.ones(2, 2), head)
    assert torch.allclose(x, torch.full((2, 2), 1e-5 / math.sqrt(2)))


@pytest.mark.parametrize("kind", [kind for kind in EXAMPLES if kind != "ClipFunction"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_small_gradients_pass_bit_for_bit(kind, dtype, same):
    before = gradients_of(1e-4, dtype)
    expected = [tensor.clone() for tensor in before.tensors]
    assert same(expected, clipped(EXAMPLES[kind], before))


@pytest.mark.parametrize("kind", EXAMPLES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_types_stay_and_large_gradients_become_smaller(kind, dtype):
    before = gradients_of(100.0, dtype)
    size = flat(before.tensors).norm()
    tensors = list(before.tensors)
    after = clipped(EXAMPLES[kind], before)
    assert all(a is b for a, b in zip(tensors, after, strict=True))  # in place
    assert {dtype} == {tensor.dtype for tensor in after}
    assert flat(after).norm() < 0.6 * size


@pytest.mark.parametrize("kind", EXAMPLES)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_not_hidden(make_learner, make_context, snapshot, same, kind, bad):
    context = make_context(nonfinite="skip")
    learner = make_learner(nn.Linear(3, 2), context=context, clip=EXAMPLES[kind])
    before = snapshot(learner)["tensors"]
    handle = learner.weight.register_hook(lambda gradient: gradient.index_fill(0, torch.tensor([0]), bad))
    update = learner.update(lambda x: learner(x).sum(1), torch.ones(4, 3))
    handle.remove()
    assert (bool(update.skipped), math.isfinite(update.gradient_norm)) == (True, False)
    assert same(before, snapshot(learner)["tensors"])
    assert not bool(learner.update(lambda x: learner(x).sum(1), torch.ones(4, 3)).skipped)


@pytest.mark.parametrize("kind", EXAMPLES)
@pytest.mark.parametrize("precision", ["float32", "float64", "bf16", "fp16-mixed", "O2"])
def test_clips_see_normalised_gradients_and_the_norm_before_them(make_learner, kind, precision):
    """The same clip of a mean over 4 and over 64 copies of the examples, whole and split, under any loss scale."""

    def train(copies, micro_batch):
        torch.manual_seed(0)
        scale = {"loss_scale": 64.0} if precision in ("fp16-mixed", "O2") else {}
        learner = make_learner(nn.Linear(3, 2), precision=precision, clip=EXAMPLES[kind], **scale)
        data = torch.tensor([[1.0, 2.0, -1.0], [0.5, -2.0, 4.0]]).repeat(copies, 1)
        update = learner.update(lambda x: learner(x).square().sum(1) * 3, data, micro_batch=micro_batch)
        return float(update.gradient_norm), torch.cat(
            [t.grad.double().reshape(-1) for t in learner._parts.weights.stepped]
        )

    norm, gradient = train(2, None)
    assert gradient.norm() < 0.9 * norm
    for copies, micro_batch in ((2, 1), (32, None), (32, 7)):
        other_norm, other = train(copies, micro_batch)
        assert other_norm == pytest.approx(norm, rel=2e-2)
        assert torch.allclose(gradient, other, rtol=3e-2, atol=1e-5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ts.ClipNorm(0), "would stop all training"),
        (lambda: ts.ClipNorm(-1.0), "would stop all training"),
        (lambda: ts.ClipNorm(math.nan), "would stop all training"),
        (lambda: ts.ClipNorm(1.0, 0.5), "is no norm"),
        (lambda: ts.ClipValue(0.0), "would set every gradient to zero"),
        (lambda: ts.ClipAdaptive(0.0), "would stop all training"),
        (lambda: ts.ClipAdaptive(min_weight_norm=0.0), "would stop all training"),
        (lambda: ts.ClipFunction(3), "needs a function"),
        (lambda: ts.ClipNorm("1"), r"max_norm='1'.* was given a str .*ts\.ClipNorm\(max_norm=1\.0\)"),
        (lambda: ts.ClipNorm(1.0, None), r"norm_type=None.*ts\.ClipNorm\(norm_type=2\.0\)"),
        (lambda: ts.ClipValue(True), "max_value=True.* was given a bool"),
        (lambda: ts.ClipAdaptive([0.1]), r"ratio=\[0\.1\].* was given a list"),
        (lambda: ts.ClipAdaptive(min_weight_norm="0"), "min_weight_norm='0'"),
        (
            lambda: clip_from_option(nn.utils.clip_grad_norm_),
            r"clip_grad_norm_ is torch's.*write clip=ts\.ClipNorm\(1\.0\)",
        ),
        (lambda: clip_from_option(nn.utils.clip_grad_value_), r"write clip=ts\.ClipValue\(1\.0\)"),
        (
            lambda: clip_from_option(ts.ClipNorm),
            r"clip=ClipNorm is the kind .* write clip=ts\.ClipNorm\(\.\.\.\)",
        ),
        (lambda: clip_from_option(1.0), r"ts\.ClipNorm\(1\.0\) or ts\.ClipValue\(1\.0\)"),
        (lambda: clip_from_option(0), r"clip=0 does not say what is clipped"),
        (lambda: clip_from_option("norm"), "is no kind of clipping.*write ts.ClipNorm"),
    ],
)
def test_clips_that_mean_nothing_are_refused(make, message):
    with pytest.raises(ts.OptionError, match=message):
        make()


def test_a_function_gets_names_and_gradients(make_learner):
    seen = {}
    learner = make_learner(nn.Linear(2, 1), clip=seen.update)
    learner.update(lambda x: learner(x).squeeze(1), torch.tensor([[1.0, 3.0]]))
    assert {name: g.tolist() for name, g in seen.items()} == {"weight": [[1.0, 3.0]], "bias": [1.0]}


def noised(parameters):
    for parameter in parameters:
        parameter.grad.add_(0.1)


@pytest.mark.parametrize(
    "function",
    [
        partial(nn.utils.clip_grad_norm_, max_norm=1.0),
        lambda parameters: nn.utils.clip_grad_value_(parameters, 1.0),
        noised,
        lambda gradients: [g.mul_(0.5) for g in gradients],
        lambda: None,
    ],
)
def test_a_function_of_something_else_is_told_what_it_gets(make_learner, function):
    learner = make_learner(nn.Linear(2, 1), clip=function)
    with pytest.raises((AttributeError, TypeError)) as raised:
        learner.update(lambda x: learner(x).squeeze(1), torch.tensor([[1.0, 3.0]]))
    (note,) = (note for note in raised.value.__notes__ if "clip=" in note)
    assert "{parameter name: gradient}" in note


def test_a_norm_that_was_not_measured_is_computed_when_asked_for_and_not_later(make_learner):
    learner = make_learner(nn.Linear(2, 1))
    loss = lambda x: learner(x).squeeze(1)
    first = learner.update(loss, torch.tensor([[3.0, 0.0]]))
    assert float(first.gradient_norm) == pytest.approx(math.sqrt(10))
    first = learner.update(loss, torch.tensor([[3.0, 0.0]]))
    learner.update(loss, torch.tensor([[5.0, 0.0]]))
    with pytest.raises(ts.LossError, match="The gradient of this update is gone"):
        first.gradient_norm
