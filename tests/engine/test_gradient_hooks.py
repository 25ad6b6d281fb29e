# SPDX-License-Identifier: Apache-2.0
"""Hooks on parameters see the gradient of the whole batch, however it is split: the loop by hand is the reference."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import truestep as ts


def clamp(gradient):
    return gradient.clamp(-0.02, 0.02)


def clamp_in_place(gradient):
    gradient.clamp_(-0.02, 0.02)


def normalise(gradient):
    return gradient / (gradient.norm() + 1e-3)


def clamp_afterwards(parameter):
    parameter.grad.clamp_(-0.02, 0.02)


def replace_afterwards(parameter):
    parameter.grad = parameter.grad.sign() * 0.1


BEFORE = [clamp, clamp_in_place, normalise, torch.sign, lambda gradient: gradient * 0.5]
AFTER = [clamp_afterwards, replace_afterwards]
hooks = st.lists(
    st.tuples(st.sampled_from(["0.weight", "0.bias", "2.weight"]), st.sampled_from(BEFORE + AFTER)),
    max_size=4,
)


def hooked(hooks, dtype=torch.float64):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).to(dtype)
    for name, hook in hooks:
        parameter = module.get_parameter(name)
        if hook in AFTER:
            parameter.register_post_accumulate_grad_hook(hook)
        else:
            parameter.register_hook(hook)
    return module


def losses_of(module, rows, weights):
    """Two values an example, which count as they are, or by their weights; or one."""
    values = module(rows).square()
    if weights is None:
        return values.sum(1), None
    return values, None if weights == "values" else weights


def squares(net):
    return lambda rows: net(rows).square().sum(1)


def by_hand(module, rows, weights):
    values, weights = losses_of(module, rows, weights)
    (values.mean() if weights is None else (values * weights).sum() / weights.sum()).backward()
    return [parameter.grad for parameter in module.parameters()]


def rows_and_weights(size, kind):
    draw = torch.Generator().manual_seed(size)
    rows = torch.randn(size, 3, generator=draw, dtype=torch.float64)
    weights = torch.rand(size, 2, generator=draw, dtype=torch.float64) + 0.1
    return rows, weights if kind == "weights" else kind


@settings(max_examples=80)
@given(
    hooks=hooks,
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    kind=st.sampled_from([None, "values", "weights"]),
    way=st.sampled_from(["update", "block", "weighted block"]),
)
def test_the_gradient_is_that_of_the_loop_by_hand(make_learner, hooks, sizes, kind, way):
    rows, weights = rows_and_weights(sum(sizes), kind)
    expected = by_hand(hooked(hooks), rows, weights)
    net = make_learner(hooked(hooks), lambda p: torch.optim.SGD(p, lr=0.0), precision="float64")

    def loss(batch):
        rows, weights = batch if isinstance(batch, tuple) else (batch, kind)
        values, weights = losses_of(net, rows, weights)
        return values if kind is None else ts.weighted(values, weights)

    batch = rows if kind != "weights" else (rows, weights)
    if way == "update":
        net.update(loss, batch, micro_batch=sizes)
    else:
        parts = [
            part if kind != "weights" else (part, of_part)
            for part, of_part in zip(
                rows.split(sizes), (weights if kind == "weights" else rows).split(sizes), strict=True
            )
        ]
        total = {None: len(rows), "values": 2 * len(rows)}.get(kind) or float(weights.sum())
        with net.accumulating(weight=total if way == "weighted block" else None) as update:
            for part in parts:
                update.backward(loss(part))
    for parameter, gradient in zip(net.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("precision", ["bf16", "O2", "fp16-mixed"])
def test_in_low_precision_a_hook_sees_the_whole_gradient_too(make_learner, precision):
    options = {"loss_scale": 64.0} if precision != "bf16" else {}
    gradients = []
    for micro_batch in (None, 3):
        net = make_learner(
            hooked([("0.weight", clamp)], torch.float32),
            lambda p: torch.optim.SGD(p, lr=0.0),
            precision=precision,
            **options,
        )
        net.update(squares(net), torch.ones(8, 3), micro_batch=micro_batch)
        gradients.append(net._parts.weights.stepped[0].grad.float())
    assert gradients[0].abs().max() < 0.0201
    torch.testing.assert_close(*gradients, rtol=0.02, atol=1e-3)


def test_an_optimizer_that_evaluates_the_loss_itself_gets_it_too(make_learner):
    ends = []
    for micro_batch in (None, 3):
        net = make_learner(
            hooked([("0.weight", clamp), ("2.weight", clamp_afterwards)]),
            lambda p: torch.optim.LBFGS(p, lr=0.1, max_iter=3),
            precision="float64",
        )
        net.update(squares(net), rows_and_weights(8, None)[0], micro_batch=micro_batch)
        ends.append([parameter.detach() for parameter in net.parameters()])
    torch.testing.assert_close(*ends, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("micro_batch", [None, 3])
def test_hooks_are_called_once_an_update_in_their_order_and_can_be_removed(make_learner, micro_batch):
    net, calls = make_learner(nn.Linear(3, 1)), []
    first = net.weight.register_hook(lambda _: calls.append("first"))
    net.weight.register_hook(lambda _: calls.append("second"))
    net.weight.register_post_accumulate_grad_hook(lambda _: calls.append("last"))
    loss = lambda rows: net(rows).squeeze(1)
    net.update(loss, torch.ones(8, 3), micro_batch=micro_batch)
    assert calls == ["first", "second", "last"]
    first.remove()
    net.update(loss, torch.ones(8, 3), micro_batch=micro_batch)
    assert calls[3:] == ["second", "last"]


def test_a_hook_that_raises_takes_the_update_back_and_stays(make_learner, snapshot, same):
    net = make_learner(nn.Linear(3, 1))
    net.weight.register_hook(lambda _: 1 / 0)
    before = snapshot(net)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            net.update(lambda rows: net(rows).squeeze(1), torch.ones(8, 3), micro_batch=3)
    assert same(before, snapshot(net))


def test_a_backward_that_raises_gives_the_hooks_back(make_learner):
    net, calls = make_learner(nn.Linear(3, 1)), []
    net.weight.register_hook(lambda _: calls.append(1))

    def broken(rows):
        outputs = net(rows).squeeze(1)
        outputs.register_hook(lambda _: 1 / 0)
        return outputs * 1

    with pytest.raises(ZeroDivisionError):
        net.update(broken, torch.ones(8, 3), micro_batch=3)
    net.update(lambda rows: net(rows).squeeze(1), torch.ones(8, 3))
    assert calls == [1]


@pytest.mark.parametrize("micro_batch", [1, 3, [1, 6, 1]])
def test_a_backward_hook_of_a_module_that_looks_at_each_example_is_exact(make_learner, micro_batch):
    gradients = []
    for size in (None, micro_batch):
        module = hooked([])
        module[1].register_full_backward_hook(lambda _, inputs, __: (inputs[0].clamp(-0.01, 0.01),))
        net = make_learner(module, lambda p: torch.optim.SGD(p, lr=0.0), precision="float64")
        net.update(squares(net), rows_and_weights(8, None)[0], micro_batch=size)
        gradients.append([parameter.grad for parameter in net.parameters()])
    torch.testing.assert_close(*gradients, rtol=1e-12, atol=1e-15)
