# SPDX-License-Identifier: Apache-2.0
"""Clipping in a plain loop: torch's bits, every kind, loss scales, what bad input gets."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.clips import EXAMPLES
from torch import nn

import truestep as ts


def leaves(seed, scale, dtype=torch.float32, shapes=((4, 3, 2), (5,), (), (0,))):
    draw = torch.Generator().manual_seed(seed)
    parameters = [nn.Parameter(torch.randn(shape, generator=draw).to(dtype)) for shape in shapes]
    for parameter in parameters:
        parameter.grad = (torch.randn(parameter.shape, generator=draw) * scale).to(dtype)
    return parameters


def gradients(parameters):
    return [parameter.grad for parameter in parameters]


@given(
    st.floats(1e-9, 1e6),
    st.floats(1e-6, 1e3),
    st.sampled_from([1.0, 2.0, 3.0, 1.5]),
    st.sampled_from([torch.float32, torch.float64]),
    st.integers(0, 9),
)
@settings(deadline=None)
def test_a_norm_clip_ends_on_torchs_bits_and_returns_its_norm(same, scale, max_norm, norm_type, dtype, seed):
    ours, torchs = leaves(seed, scale, dtype), leaves(seed, scale, dtype)
    expected = nn.utils.clip_grad_norm_(torchs, max_norm, norm_type)
    norm = ts.clip_gradients(ours, ts.ClipNorm(max_norm, norm_type))
    assert same([expected, gradients(torchs)], [norm, gradients(ours)])
    assert norm.ndim == 0


@given(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
@settings(deadline=None)
def test_a_value_clip_ends_on_torchs_bits(same, scale, max_value):
    ours, torchs = leaves(0, scale), leaves(0, scale)
    nn.utils.clip_grad_value_(torchs, max_value)
    ts.clip_gradients(ours, ts.ClipValue(max_value))
    assert same(gradients(torchs), gradients(ours))


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


@pytest.mark.parametrize("kind", EXAMPLES)
def test_a_plain_loop_takes_the_engines_steps_to_the_bit(make_learner, same, kind):
    data = torch.randn(16, 3, generator=torch.Generator().manual_seed(1))
    make = lambda p: torch.optim.AdamW(p, lr=0.1)
    learner = make_learner(network(), make, clip=EXAMPLES[kind])
    net = network()
    optimizer = make(net.parameters())
    optimizer.defaults["fused"] = learner.optimizers[0].defaults["fused"]
    for group in optimizer.param_groups:
        group["fused"] = learner.optimizers[0].defaults["fused"]
    for _ in range(3):
        update = learner.update(lambda x: learner(x).square().sum(1), data)
        optimizer.zero_grad()
        net(data).square().sum(1).mean().backward()
        norm = ts.clip_gradients(net, EXAMPLES[kind])
        optimizer.step()
        assert same(update.gradient_norm, norm)
    assert same([*learner.module.parameters()], [*net.parameters()])


@pytest.mark.parametrize(
    "form", ["module", "parameters", "names", "dict", "list", "twice", "generator of pairs", "tensor"]
)
def test_parameters_are_read_in_every_form_and_each_counts_once(form):
    net = nn.Linear(3, 1, bias=False)
    net.weight.grad = torch.tensor([[3.0, 0.0, 4.0]])
    given_ = {
        "module": net,
        "parameters": net.parameters(),
        "names": net.named_parameters(),
        "dict": dict(net.named_parameters()),
        "list": list(net.parameters()),
        "twice": [net.weight, net.weight],
        "generator of pairs": ((name, p) for name, p in net.named_parameters()),
        "tensor": net.weight,
    }[form]
    assert float(ts.clip_gradients(given_, ts.ClipNorm(1.0))) == 5.0
    torch.testing.assert_close(net.weight.grad, torch.tensor([[0.6, 0.0, 0.8]]))


def test_names_reach_the_kinds_that_use_them():
    net = network()
    net(torch.ones(2, 3)).square().sum().backward()
    seen = {}
    ts.clip_gradients(net, seen.update)
    assert list(seen) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    last = net[2].weight.grad.clone()
    ts.clip_gradients(net, ts.ClipAdaptive(1e-6, skip=("2.",)))
    assert torch.equal(last, net[2].weight.grad)
    assert float(net[0].weight.grad.norm()) < 1e-4


def test_parameters_without_gradient_are_passed_over_and_stay_without():
    net = network()
    net[0].requires_grad_(False)
    net(torch.ones(2, 3)).sum().backward()
    ts.clip_gradients(net, ts.ClipNorm(1e-3))
    assert [p.grad is None for p in net.parameters()] == [True, True, False, False]
    assert float(nn.utils.get_total_norm(gradients(net[2].parameters()))) <= 1e-3


@pytest.mark.parametrize("norm_type", [1, 2, math.inf])
def test_types_may_be_mixed_and_half_precision_is_measured_in_float32(norm_type):
    parts = [leaves(1, 1e4, dtype, ((9,),))[0] for dtype in (torch.float32, torch.float16, torch.bfloat16)]
    expected = torch.cat([p.grad.float() for p in parts]).norm(norm_type)
    assert math.isfinite(expected)
    norm = ts.clip_gradients(parts, ts.ClipNorm(1.0, norm_type))
    torch.testing.assert_close(norm, expected)
    after = torch.cat([p.grad.float() for p in parts]).norm(norm_type)
    torch.testing.assert_close(after, torch.ones(()), rtol=1e-2, atol=0)


def test_sparse_gradients_are_clipped_with_the_others():
    table = nn.Embedding(5, 2, sparse=True)
    table(torch.tensor([1, 1, 3])).sum().backward()
    norm = ts.clip_gradients(table, ts.ClipNorm(1.0))
    torch.testing.assert_close(norm, torch.tensor(10.0).sqrt())
    torch.testing.assert_close(table.weight.grad.to_dense().norm(), torch.ones(()))


def test_a_gradient_with_a_graph_is_clipped_without_one():
    x = torch.tensor([3.0, 4.0], requires_grad=True)
    x.grad = (x * 2).clone()
    norm = ts.clip_gradients(x, ts.ClipNorm(1.0))
    assert (float(norm), norm.requires_grad) == (10.0, False)
    torch.testing.assert_close(x.grad, torch.tensor([0.6, 0.8]), check_stride=False)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("kind", EXAMPLES)
def test_what_is_not_finite_shows_in_the_norm_and_raises_on_request_before_anything_is_clipped(kind, bad):
    net = network()
    net(torch.ones(2, 3)).square().sum().backward()
    net[2].bias.grad[0] = bad
    before = [g.clone() for g in gradients(net.parameters())]
    with pytest.raises(ts.NonFiniteError, match=r"in 2\.bias.*nothing was clipped"):
        ts.clip_gradients(net, EXAMPLES[kind], nonfinite="raise")
    assert all(torch.equal(a, b) for a, b in zip(before[:3], gradients(net.parameters())[:3], strict=True))
    assert not math.isfinite(ts.clip_gradients(net, EXAMPLES[kind]))


def scaled_step(clip_with, how):
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=how != "disabled")
    scaler.scale(net(torch.ones(2, 3)).square().sum() * 5).backward()
    if how == "unscaled before":
        scaler.unscale_(optimizer)
    norm = clip_with(net, optimizer, scaler)
    scaler.step(optimizer)
    scaler.update()
    return norm, [p.detach() for p in net.parameters()]


@pytest.mark.parametrize("how", ["scaled", "unscaled before", "disabled"])
def test_a_loss_scale_is_divided_out_exactly_once(same, how):
    def plain(net, optimizer, scaler):
        if how == "scaled":
            scaler.unscale_(optimizer)
        return nn.utils.clip_grad_norm_(net.parameters(), 1.0)

    def ours(net, optimizer, scaler):
        norm = ts.clip_gradients(net, ts.ClipNorm(1.0), scaler=scaler, optimizer=optimizer)
        return norm if how == "disabled" else check_again(net, optimizer, scaler, norm)

    def check_again(net, optimizer, scaler, norm):
        before = [g.clone() for g in gradients(net.parameters())]
        ts.clip_gradients(net, ts.ClipNorm(1e9), scaler=scaler, optimizer=optimizer)
        assert same(before, gradients(net.parameters()))
        return norm

    assert same(scaled_step(plain, how), scaled_step(ours, how))


def test_an_overflow_is_left_to_the_scaler():
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    before = [p.detach().clone() for p in net.parameters()]
    scaler.scale(net(torch.full((2, 3), math.inf)).sum()).backward()
    assert not math.isfinite(ts.clip_gradients(net, ts.ClipNorm(1.0), scaler=scaler, optimizer=optimizer))
    scaler.step(optimizer)
    scaler.update()
    assert (all(map(torch.equal, before, net.parameters())), scaler.get_scale()) == (True, 2.0)


def with_gradient():
    net = nn.Linear(2, 1)
    net(torch.ones(1, 2)).sum().backward()
    return net


def used_up():
    net = with_gradient()
    parameters = net.parameters()
    torch.optim.SGD(parameters, lr=0.1)
    return parameters


def scaled(stepped=False, strange=False):
    net = with_gradient()
    optimizer = torch.optim.SGD((nn.Linear(2, 1) if strange else net).parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu")
    if stepped:
        scaler.scale(torch.ones(()))
        scaler.step(optimizer)
    return ts.clip_gradients(net, ts.ClipNorm(1.0), scaler=scaler, optimizer=optimizer)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: ts.clip_gradients(used_up(), ts.ClipNorm(1.0)),
            r"can be read once: an optimizer.*used it up",
        ),
        (lambda: ts.clip_gradients([], ts.ClipNorm(1.0)), "no parameters to clip"),
        (lambda: ts.clip_gradients(nn.ReLU(), ts.ClipNorm(1.0)), "no parameters to clip"),
        (lambda: ts.clip_gradients(with_gradient(), 1.0), r"write ts.ClipNorm\(1.0\)"),
        (lambda: ts.clip_gradients(with_gradient(), None), "clip=None clips nothing"),
        (lambda: ts.clip_gradients(with_gradient(), ts.ClipNorm(1.0), nonfinite="skip"), "nonfinite='skip'"),
        (lambda: ts.clip_gradients(3, ts.ClipNorm(1.0)), "type int holds no parameters"),
        (lambda: ts.clip_gradients([3], ts.ClipNorm(1.0)), "hold something of type int"),
        (lambda: ts.clip_gradients(with_gradient().weight * 2, ts.ClipNorm(1.0)), "'0'.*was computed"),
        (
            lambda: ts.clip_gradients(
                [*with_gradient().named_parameters(), *with_gradient().named_parameters()], ts.ClipNorm(1.0)
            ),
            "Two parameters are called 'weight'",
        ),
        (
            lambda: ts.clip_gradients(with_gradient(), ts.ClipNorm(1.0), scaler=torch.amp.GradScaler("cpu")),
            "scaler= without optimizer=",
        ),
        (
            lambda: ts.clip_gradients(
                net := with_gradient(),
                ts.ClipNorm(1.0),
                optimizer=torch.optim.SGD(net.parameters(), lr=0.1),
            ),
            "optimizer= without scaler=",
        ),
        (
            lambda: ts.clip_gradients(
                with_gradient(), ts.ClipNorm(1.0), scaler=torch.amp.GradScaler("cpu"), nonfinite="raise"
            ),
            "overflows are how a loss scale is found",
        ),
        (scaled, "has scaled no loss yet"),
        (lambda: scaled(stepped=True), "clipping now changes nothing"),
        (lambda: scaled(strange=True), "does not hold weight, bias, so their gradients would stay scaled"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(ts.OptionError, match=message):
        call()


def test_a_learner_is_told_that_it_clips_itself(make_learner):
    with pytest.raises(ts.OptionError, match="whose update clips before it steps"):
        ts.clip_gradients(make_learner(nn.Linear(2, 1)), ts.ClipNorm(1.0))


@pytest.mark.parametrize("when", ["before backward", "after zero_grad"])
def test_clipping_where_there_is_no_gradient_is_refused(when):
    net = with_gradient()
    net.zero_grad()
    with pytest.raises(ts.LossError, match=r"None of 2 parameters has a gradient.*after loss\.backward"):
        ts.clip_gradients(net, ts.ClipNorm(1.0))


@pytest.mark.parametrize(
    ("gradient", "clip", "message"),
    [
        (torch.eye(3).to_sparse(), ts.ClipAdaptive(0.1), "the sparse gradient of 'w' holds few rows"),
        (torch.ones(3) * 1j, ts.ClipValue(0.1), "no meaning for complex gradients, as 'w' has"),
        (torch.ones(3), lambda found: {name: g / 2 for name, g in found.items()}, "a dict of new tensors"),
    ],
)
def test_a_clip_that_can_not_act_on_a_gradient_is_refused_by_name(gradient, clip, message):
    parameter = nn.Parameter(torch.ones(gradient.shape, dtype=gradient.dtype))
    parameter.grad = gradient.clone()
    with pytest.raises(ts.OptionError, match=message):
        ts.clip_gradients({"w": parameter}, clip)
    assert torch.equal(gradient.to_dense(), parameter.grad.to_dense())
