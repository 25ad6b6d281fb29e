# SPDX-License-Identifier: Apache-2.0
"""backward(), zero_grad() or a step inside the loss is an error wherever it changes the update; autograd.grad is not."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.optim.optimizer import _global_optimizer_pre_hooks

import truestep as ts
from truestep.engine.update import _lent_example

X = torch.randn(8, 3, generator=torch.Generator().manual_seed(0))


def everything(net, mine):
    """Names of what a loss may do wrong, each as a function of its losses."""

    def backward(losses):
        losses.mean().backward(retain_graph=True)

    def whole_body(losses):
        mine.zero_grad()
        losses.mean().backward(retain_graph=True)
        mine.step()

    def hidden_body(losses):
        losses.mean().backward(retain_graph=True)
        mine.step()
        mine.zero_grad()

    def own_step(losses):
        losses.mean().backward(retain_graph=True)
        net.optimizers[0].step()

    def zero_grad(losses):
        net.module.zero_grad()

    def zero_in_place(losses):
        net.module.zero_grad(set_to_none=False)

    def step(losses):
        mine.step()

    return locals()


ALWAYS = ["backward", "whole_body", "hidden_body", "own_step"]
SPLIT = ["zero_grad", "zero_in_place", "step"]


def prepared(make_learner, optimizer=None, precision="float32"):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    net = make_learner(module, optimizer, precision=precision)
    return net, torch.optim.SGD(net.parameters(), lr=0.1)


def loss_with(net, act, when=lambda x: True):
    def loss(x):
        losses = net(x).squeeze(1).square()
        if when(x):
            act(losses)
        return losses

    return loss


def update_with(make_learner, net, act, how):
    if how == "accumulating":
        with net.accumulating() as update:
            for part in X.split(4):
                update.backward(loss_with(net, act)(part))
    elif how == "joint":
        other = make_learner(nn.Linear(3, 1), context=net._parts.context)
        ts.update([other, net], lambda x: loss_with(net, act)(x) + other(x).squeeze(1), X)
    else:
        size = {"split": 3, "last part": [5, 3], "auto": "auto"}.get(how)
        when = (lambda x: len(x) == 3) if how == "last part" else (lambda x: True)
        net.update(loss_with(net, act, when), X, micro_batch=size)


# LBFGS's own step asks for a closure before anything else, and on a first part there is nothing to clear or to step with.
CASES = [
    (what, how)
    for how in ("whole", "split", "last part", "auto", "lbfgs", "accumulating", "joint")
    for what in ALWAYS + (SPLIT if how in ("split", "last part", "accumulating") else [])
    if (what, how) != ("own_step", "lbfgs")
]


@pytest.mark.parametrize(("what", "how"), CASES)
def test_it_is_refused_and_nothing_has_changed(make_learner, snapshot, same, what, how):
    optimizer = (lambda p: torch.optim.LBFGS(p, max_iter=3)) if how == "lbfgs" else None
    net, mine = prepared(make_learner, optimizer)
    act = everything(net, mine)[what]
    net.update(lambda x: net(x).squeeze(1).square(), X)  # gradients of an earlier update are there
    before = snapshot(net)
    words = r"The loss function (changed the gradients|stepped an optimizer).*net\.update\(loss, batch\)"
    with pytest.raises(ts.LossError, match=words):
        update_with(make_learner, net, act, how)
    after = snapshot(net)
    if what in ("backward", *SPLIT):
        assert same({**before, "gradients": None}, {**after, "gradients": None})


def test_the_end_of_an_accumulating_block_is_looked_at_too(make_learner):
    net, mine = prepared(make_learner)

    def block(act):
        with net.accumulating() as update:
            update.backward(net(X).mean())
            act()

    with pytest.raises(ts.LossError, match="changed the gradients"):
        block(lambda: net(X).mean().backward())
    with pytest.raises(ts.LossError, match="stepped an optimizer"):
        block(mine.step)


@pytest.mark.parametrize("micro_batch", [None, 3])
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_gradients_that_leave_the_update_alone_are_fine(make_learner, micro_batch, precision):
    net, _ = prepared(make_learner, precision=precision)
    others = nn.Linear(3, 1)
    probe = torch.optim.SGD(others.parameters(), lr=0.1)

    def loss(x):
        point = x.clone().requires_grad_()
        (slope,) = torch.autograd.grad(net(point).float().sum(), point, create_graph=True)
        torch.autograd.backward(net(point).float().sum(), inputs=[point])  # adversarial examples
        others(x).sum().backward()  # a network that no learner owns
        probe.step()
        return net(x + 0.1 * point.grad.sign()).float().squeeze(1) + slope.square().sum(1)

    for _ in range(2):
        net.update(loss, X, micro_batch=micro_batch)
    assert net._parts.counters.updates == 2


def test_steps_outside_of_a_loss_are_the_users_own(make_learner):
    net, mine = prepared(make_learner)
    with pytest.raises(ZeroDivisionError):
        net.update(lambda x: 1 / 0, X)
    net(X).mean().backward()
    mine.step()
    net.update(lambda x: net(x).squeeze(1), X)
    mine.step()


def test_an_update_within_a_loss_leaves_the_refusal_of_steps_as_it_was(make_learner):
    """Both learners have a context of their own, as those of two runs."""
    inner, outer = (make_learner(nn.Linear(3, 1)) for _ in range(2))
    before = dict(_global_optimizer_pre_hooks)

    def loss(x):
        inner.update(lambda rows: inner(rows).squeeze(1), x)
        outer.optimizers[0].step()
        return outer(x).squeeze(1)

    with pytest.raises(ts.LossError, match="The loss function stepped an optimizer"):
        outer.update(loss, X)
    assert dict(_global_optimizer_pre_hooks) == before


def test_a_loss_that_calls_backward_and_returns_itself_is_explained(make_learner):
    net, mine = prepared(make_learner)

    def body(x):
        mine.zero_grad()
        value = net(x).square().mean()
        value.backward()
        mine.zero_grad()
        return value

    with pytest.raises(ts.LossError, match="Leave backward\\(\\) out"):
        net.update(body, X)


def test_a_process_without_an_example_refuses_a_batch_with_a_graph():
    """What another process lends has no graph: such a loss "has no gradient", which names nothing that was done wrong."""
    scored, labels = nn.Linear(3, 2)(X)[:0], torch.zeros(0, dtype=torch.long)
    lender = SimpleNamespace(example=lambda batch, counting: "lent")
    with pytest.raises(ts.LossError, match="this process has no example of the batch"):
        _lent_example(lender, 0, (scored, labels), None)
    assert _lent_example(lender, 0, (scored.detach(), labels), None) == "lent"
    assert _lent_example(lender, 1, (scored, labels), None) == "lent"


@pytest.mark.parametrize("way", ["update", "block"])
def test_a_nan_that_anomaly_mode_stops_at_is_explained_where_the_loss_is_scaled(make_learner, way):
    """A gradient overflows until the scale fits; torch's words name an operation that did nothing wrong."""
    net = make_learner(nn.Linear(3, 2), precision="fp16-mixed")

    def loss(x):
        return (net(x).float().mean(1) * 0).sqrt()

    def train(net):
        if way == "update":
            net.update(loss, X)
        else:
            with net.accumulating() as update:
                update.backward(loss(X))

    with (
        torch.autograd.set_detect_anomaly(True),
        pytest.raises(ts.LossError, match="In float16 the loss is scaled"),
    ):
        train(net)
