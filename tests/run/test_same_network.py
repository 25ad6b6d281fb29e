# SPDX-License-Identifier: Apache-2.0
"""A loss that asks one network by two names, as `target = policy` makes them, is told that its target never lags."""

import copy
import functools
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import truestep as ts

WORDS = "never lags behind"


def difference(net, other, batch):
    with torch.no_grad():
        wanted = other(batch).max(1).values
    return (net(batch)[:, 0] - wanted).square()


def detached(net, other, batch):
    wanted = 1 + 0.9 * other(batch).amax(1)
    return (net(batch)[:, 0] - wanted.detach()).square()


@torch.no_grad()
def answer_of(network, batch):
    return network(batch).amax(1)


class Agent:
    def __init__(self, policy, target):
        self.policy, self.target = policy, target

    def loss(self, batch):
        return (self.policy(batch)[:, 0] - self.target(batch).amax(1).detach()).square()


class Own:
    def __init__(self, policy):
        self.policy = policy
        self.target = self.policy

    def wanted(self, batch):
        with torch.inference_mode():
            return self.target(batch).amax(1)

    def loss(self, batch):
        return (self.policy(batch)[:, 0] - self.wanted(batch).clone()).square()


class Shared:
    policy = target = None

    def __call__(self, batch):
        return detached(self.policy, self.target, batch)


def plain(make, network):
    target = network
    policy = make(network)
    return policy, lambda batch: difference(policy, target, batch)


def of_learner(make, network):
    policy = make(network)
    target = policy
    return policy, lambda batch: detached(policy, target, batch)


def in_dict(make, network):
    policy = make(network)
    nets = {"policy": policy, "target": policy}

    def loss(batch):
        with torch.no_grad():
            wanted = nets["target"](batch).amax(1)
        return (nets["policy"](batch)[:, 0] - wanted).square()

    return policy, loss


def in_class(make, network):
    policy = make(network)
    agent = Agent(policy, policy)
    return policy, agent.loss


def of_class(make, network):
    policy = make(network)
    return policy, Own(policy).loss


def in_namespace(make, network):
    policy = make(network)
    nets = SimpleNamespace(policy=policy, target=policy)

    def loss(batch):
        return (nets.policy(batch)[:, 0] - answer_of(nets.target, batch)).square()

    return policy, loss


def chained(make, network):
    policy = target = make(network)

    def loss(batch):
        return (policy(batch)[:, 0] - target(batch).detach().amax(1)).square()

    return policy, loss


def shallow(make, network):
    target = copy.copy(network)
    policy = make(network)

    def loss(batch):
        return (policy(batch)[:, 0] - target(batch).data.amax(1)).square()

    return policy, loss


def in_partial(make, network):
    target = network
    policy = make(network)
    return policy, functools.partial(lambda target, batch: difference(policy, target, batch), target)


def one_name(make, network):
    policy = make(network)
    return policy, lambda batch: difference(policy, policy, batch)


def module_and_learner(make, network):
    policy = make(network)

    def loss(batch):
        with torch.no_grad():
            wanted = network(batch).amax(1)
        return (policy(batch)[:, 0] - wanted).square()

    return policy, loss


def deep_copy(make, network):
    target = copy.deepcopy(network).requires_grad_(False)
    policy = make(network)
    return policy, lambda batch: difference(policy, target, batch)


def same_sizes(make, network):
    target = nn.Linear(3, 2)
    policy = make(network)
    agent = Agent(policy, target)
    return policy, agent.loss


def both_with_gradient(make, network):
    view = network
    policy = make(network)
    return policy, lambda batch: (policy(batch)[:, 0] - view(-batch)[:, 1]).square()


def online_choice(make, network):
    target = copy.deepcopy(network).requires_grad_(False)
    policy = make(network)

    def loss(batch):
        with torch.no_grad():
            best = policy(batch).argmax(1)
            wanted = target(batch).gather(1, best[:, None])[:, 0]
        return (policy(batch)[:, 0] - wanted).square()

    return policy, loss


def by_another_name_alone(make, network):
    backbone = network
    policy = make(network)

    def loss(batch):
        with torch.no_grad():
            old = backbone(batch)
        return (backbone(batch) - old - policy(batch)).square().mean(1)

    return policy, loss


TOLD = [plain, of_learner, in_dict, in_class, of_class, in_namespace, chained, shallow]
SILENT = [
    one_name,
    module_and_learner,
    deep_copy,
    same_sizes,
    both_with_gradient,
    online_choice,
    by_another_name_alone,
]


def said_of(folder, variant, capsys):
    run = ts.Run(folder, device="cpu", progress=False, doctor=False)
    policy, loss = variant(
        lambda network: run.learner(network, lambda p: torch.optim.SGD(p, lr=0.1)), nn.Linear(3, 2)
    )
    for _ in run.steps(3):
        policy.update(loss, torch.randn(8, 3))
    return capsys.readouterr().err.count(WORDS)


@pytest.mark.parametrize("variant", TOLD)
def test_a_second_name_is_no_copy(tmp_path, capsys, variant):
    assert said_of(tmp_path / "run", variant, capsys) == 1


@pytest.mark.parametrize("variant", SILENT)
def test_other_networks_are_left_alone(tmp_path, capsys, variant):
    assert said_of(tmp_path / "run", variant, capsys) == 0
