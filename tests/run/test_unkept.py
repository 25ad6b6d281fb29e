# SPDX-License-Identifier: Apache-2.0
"""A model that a loss uses and nothing keeps is named once it changes: a run that goes on would begin with another one."""

import copy
import functools
import itertools

import pytest
import torch
from torch import nn

import truestep as ts


class Agent:
    """What strangers put a target network into."""

    def __init__(self, net, target):
        self.net, self.target = net, target

    def loss(self, batch):
        return (self.net(batch) - self.target(batch).detach() - 1).square().mean(1)

    def state_dict(self):
        return {"target": {name: each.cpu().clone() for name, each in self.target.state_dict().items()}}

    def load_state_dict(self, state):
        self.target.load_state_dict(state["target"])


def difference(net, target, batch):
    return (net(batch) - target(batch).detach() - 1).square().mean(1)


def closure(net, target):
    return lambda batch: difference(net, target, batch)


def inner_function(net, target):
    def wanted(batch):
        with torch.no_grad():
            return target(batch) + 1

    return lambda batch: (net(batch) - wanted(batch)).square().mean(1)


def attribute(net, target):
    agent = Agent(net, target)
    return lambda batch: (net(batch) - agent.target(batch).detach() - 1).square().mean(1)


def method(net, target):
    return Agent(net, target).loss


def partial(net, target):
    return functools.partial(difference, net, target)


def of_a_module(net, target):
    class Algorithm(nn.Module):
        def __init__(self):
            super().__init__()
            self.online, self.target = net.module, target

        def loss(self, batch):
            return (net(batch) - self.target(batch).detach() - 1).square().mean(1)

    return Algorithm().loss


def copied(net, target):
    target.load_state_dict(net.module.state_dict())


def averaged(net, target):
    for mine, theirs in zip(target.parameters(), net.module.parameters(), strict=True):
        mine.data.mul_(0.9).add_(theirs.data, alpha=0.1)


def lerped(net, target):
    with torch.no_grad():
        for mine, theirs in zip(target.parameters(), net.parameters(), strict=True):
            mine.lerp_(theirs, 0.1)


LOSSES = (closure, inner_function, attribute, method, partial, of_a_module)
FOLLOWS = (copied, averaged, lerped)


def said(tmp_path, capsys, loss_of, follow=None, keep=None, steps=6):
    run = ts.Run(tmp_path / "run", seed=0, progress=False)
    net = run.learner(nn.Linear(4, 2), lambda p: torch.optim.Adam(p, lr=1e-2))
    target = copy.deepcopy(net.module)
    if keep == "tracked":
        run.track(target=target)
    elif keep == "in an agent":
        run.track(agent=Agent(net, target))
    loss = loss_of(net, target)
    for step in run.steps(steps):
        net.update(loss, torch.randn(8, 4))
        if follow is not None and step % 2 == 0:
            follow(net, target)
        if keep == "in run.state":
            run.state["target"] = {name: each.clone() for name, each in target.state_dict().items()}
    run.close()
    return capsys.readouterr().err


@pytest.mark.sliced(2)
@pytest.mark.parametrize(("loss_of", "follow"), [*itertools.product(LOSSES, FOLLOWS)])
def test_a_target_network_that_nothing_keeps_is_named(tmp_path, capsys, loss_of, follow):
    err = said(tmp_path, capsys, loss_of, follow)
    assert err.count("which a loss uses, has changed") == 1
    assert "Write run.track(target=" in err or loss_of in (partial, of_a_module)


@pytest.mark.sliced(2)
@pytest.mark.parametrize("loss_of", LOSSES)
@pytest.mark.parametrize("keep", ["tracked", "in an agent", "in run.state"])
def test_nothing_is_said_of_one_that_is_kept(tmp_path, capsys, loss_of, keep):
    assert "has changed" not in said(tmp_path, capsys, loss_of, copied, keep)


@pytest.mark.parametrize("loss_of", LOSSES)
def test_nothing_is_said_of_a_teacher_that_stays(tmp_path, capsys, loss_of):
    assert "has changed" not in said(tmp_path, capsys, loss_of)


def test_a_learners_own_module_is_no_target_network(tmp_path, capsys):
    with ts.Run(tmp_path / "run", seed=0, progress=False) as run:
        net = run.learner(nn.Linear(4, 2), torch.optim.AdamW)
        run.track(target=net.module)
    assert "target = copy.deepcopy(" in capsys.readouterr().err


def test_numbers_that_are_of_another_type_by_now_are_not_compared(tmp_path, capsys):
    with ts.Run(tmp_path / "run", seed=0, progress=False) as run:
        net = run.learner(nn.Linear(4, 2), torch.optim.AdamW)
        teacher = nn.Linear(4, 2).requires_grad_(False)
        for step in run.steps(6):
            net.update(
                lambda batch: (net(batch) - teacher(batch.to(teacher.weight.dtype)).float()).square().mean(1),
                torch.randn(8, 4),
            )
            if step == 2:
                teacher.bfloat16()
    assert "has changed" not in capsys.readouterr().err


def test_a_loss_with_a_variable_that_has_no_value_yet_is_used(tmp_path, capsys):
    with ts.Run(tmp_path / "run", seed=0, progress=False) as run:
        net = run.learner(nn.Linear(4, 2), torch.optim.AdamW)

        def loss(batch):
            return net(batch).square().mean(1) + (late(batch) if run.step > 9 else 0)

        for _ in run.steps(2):
            net.update(loss, torch.randn(8, 4))
        late = nn.Linear(4, 1)
    assert "has changed" not in capsys.readouterr().err
