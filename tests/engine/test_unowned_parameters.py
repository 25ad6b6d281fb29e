# SPDX-License-Identifier: Apache-2.0
"""A parameter in the loss that no learner owns is named once for each loss function, and nothing else is."""

import warnings

import pytest
import torch
from torch import nn

import truestep as ts

DATA = torch.randn(6, 3, generator=torch.Generator().manual_seed(1))


def test_parameters_that_nobody_steps_are_named_once_for_each_loss(make_learner):
    learner = make_learner(nn.Linear(3, 1), name="net")
    temperature, criterion = nn.Parameter(torch.ones(())), nn.Linear(3, 1)

    def loss(x):
        return (learner(x) * temperature + criterion(x)).squeeze(1).square()

    with pytest.warns(
        UserWarning, match=r"'net' depends on 3 trainable parameters that no learner owns \(.*temperature"
    ):
        learner.update(loss, DATA, micro_batch=2)
    learner.update(loss, DATA)
    with pytest.warns(UserWarning, match=r"criterion\.weight"):
        learner.update(lambda x: (learner(x) + criterion(x)).squeeze(1), DATA)


def test_what_a_method_or_a_call_away_hides_is_named_by_its_shape(make_learner):
    learner = make_learner(nn.Linear(3, 1), name="net")

    class Losses:
        def __init__(self):
            self.margin = nn.Parameter(torch.ones(3))

        def direct(self, x):
            return learner(x).squeeze(1) + self.margin.sum()

    losses = Losses()
    with pytest.warns(UserWarning, match=r"\(margin\)"):
        learner.update(losses.direct, DATA)
    with pytest.warns(UserWarning, match=r"one of shape \(3,\)"):
        learner.update(lambda x: losses.direct(x) + 0, DATA)


def test_a_block_names_them_too(make_learner):
    learner, margin = make_learner(nn.Linear(3, 1), name="net"), nn.Parameter(torch.ones(()))
    with learner.accumulating(weight=1) as update:
        with pytest.warns(UserWarning, match="1 trainable parameters that no learner owns"):
            update.backward((learner(DATA) * margin).mean())
        update.backward((learner(DATA) * margin).mean())


def test_what_needs_no_step_is_not_named(make_learner, make_context):
    context = make_context()
    learner = make_learner(nn.Linear(3, 1), context=context, starts_at=0)
    other = make_learner(nn.Linear(3, 1), context=context)
    frozen, teacher = nn.Linear(3, 1).requires_grad_(False), nn.Linear(3, 1)

    def loss(x):
        points = x.clone().requires_grad_()  # a penalty's input is a leaf, and no parameter
        slope = torch.autograd.grad(learner(points).sum(), points, create_graph=True)[0]
        with torch.no_grad():
            goal = teacher(x)
        return (learner(x) + other(x) + frozen(x) - goal).squeeze(1).square() + slope.square().sum(1)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learner.update(loss, DATA)
        ts.update([learner, other], loss, DATA)


def test_the_graph_is_walked_once_however_deep_it_is(make_learner):
    learner = make_learner(nn.Linear(3, 1), lambda p: torch.optim.SGD(p, lr=0.0))

    def deep(x):
        y = learner(x).squeeze(1)
        for _ in range(3000):
            y = y + 1
        return y

    learner.update(deep, DATA)


def test_a_variable_that_has_no_value_yet_is_no_obstacle(tmp_path):
    """Of the optimizer's function, and of a loss of whose parameters one is nobody's."""
    run = ts.Run(tmp_path, seed=0, progress=False, quiet=True)
    net = run.learner(nn.Linear(4, 1), lambda p: torch.optim.SGD(p, lr=0.1 if p else late))
    scale = nn.Parameter(torch.ones(()))

    def loss(batch):
        return (net(batch) * scale).square().mean(1) + (late if batch is None else 0)

    with pytest.warns(UserWarning, match="1 trainable parameters that no learner owns"):
        net.update(loss, torch.randn(4, 4))
    late = 1
    run.close()
