# SPDX-License-Identifier: Apache-2.0
"""A tensor of a batch that the learner computed, with its graph, beside a loss that calls the learner, is told once."""

import warnings

import pytest
import torch
from torch import nn
from torch.distributions import Categorical

import truestep as ts

ROWS = torch.randn(16, 2, generator=torch.Generator().manual_seed(3))
ACTIONS = torch.arange(16) % 3


@pytest.fixture
def run(tmp_path):
    return ts.Run(tmp_path / "run", seed=0, progress=False, quiet=True, doctor=False)


@pytest.fixture
def net(run):
    return run.learner(nn.Linear(2, 3), lambda p: torch.optim.SGD(p, lr=0.1), name="policy")


def log_prob(net, rows, actions):
    return Categorical(logits=net(rows)).log_prob(actions)


def ratio(net, rows, actions, old):
    return -(log_prob(net, rows, actions) - old).exp()


def old_log_probability(net):
    old = log_prob(net, ROWS, ACTIONS)
    return lambda b: ratio(net, *b), (ROWS, ACTIONS, old)


def in_dict(net):
    old = log_prob(net, ROWS, ACTIONS)
    return lambda b: ratio(net, b["s"], b["a"], b["inner"]["lp"]), {
        "s": ROWS,
        "a": ACTIONS,
        "inner": {"lp": old},
    }


def advantage(net):
    left = ROWS.sum(1) - net(ROWS)[:, 0]
    return lambda b: -log_prob(net, b[0], ACTIONS) * b[1], (ROWS, left)


def two_of_them(net):
    out = net(ROWS)
    return lambda b: (net(b[0]) - b[1]).square().mean(1) + b[2][:, 0], (ROWS, out, out * 2)


def sliced_and_stacked(net):
    old = torch.stack([log_prob(net, ROWS[i : i + 1], ACTIONS[i : i + 1])[0] for i in range(16)])
    return lambda b: ratio(net, *b), [ROWS, ACTIONS, old]


MISTAKES = [old_log_probability, in_dict, advantage, two_of_them, sliced_and_stacked]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_the_learner_computed_with_its_graph_is_told_once(net, mistake):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(3):
            net.update(*mistake(net))
    (said,) = [str(each.message) for each in told if "before this update" in str(each.message)]
    assert "was computed by 'policy'" in said
    assert "write .detach() where it is made" in said


def detached(net, _):
    old = log_prob(net, ROWS, ACTIONS).detach()
    return lambda b: ratio(net, *b), (ROWS, ACTIONS, old)


def without_grad(net, _):
    with torch.no_grad():
        old = log_prob(net, ROWS, ACTIONS)
    return lambda b: ratio(net, *b), (ROWS, ACTIONS, old)


def detached_in_loss(net, _):
    old = log_prob(net, ROWS, ACTIONS)
    return lambda b: ratio(net, b[0], b[1], b[2].detach()), (ROWS, ACTIONS, old)


def input_gradient(net, _):
    rows = ROWS.clone().requires_grad_()

    def loss(b):
        (slope,) = torch.autograd.grad(net(b).sum(), b, create_graph=True)
        return (slope.norm(dim=1) - 1).square() + net(b)[:, 0]

    return loss, rows


def input_made_from_a_leaf(net, _):
    noise = torch.zeros(16, 2, requires_grad=True)
    return lambda b: net(b).square().mean(1), ROWS + noise


def latent_of_another(net, other):
    return lambda b: net(b).square().mean(1), other(ROWS)


def outputs_alone(net, _):
    return lambda b: nn.functional.cross_entropy(b[0], b[1], reduction="none"), (net(ROWS), ACTIONS)


RIGHT = [
    detached,
    without_grad,
    detached_in_loss,
    input_gradient,
    input_made_from_a_leaf,
    latent_of_another,
    outputs_alone,
]


@pytest.mark.parametrize("right", RIGHT)
def test_constants_leaves_and_what_others_computed_are_no_question(run, net, right):
    other = run.learner(nn.Linear(2, 2), lambda p: torch.optim.SGD(p, lr=0.1), name="encoder")
    before = net.weight.detach().clone()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            net.update(*right(net, other))
    assert not torch.equal(net.weight, before)
