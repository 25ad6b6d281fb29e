# SPDX-License-Identifier: Apache-2.0
"""Causes that stand in graphs, in layers and behind torch's own calls: shared values, layers in place, subclasses."""

import linecache

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import truestep as ts
from truestep.explainer.crash import CrashFrame


def note_of(function, *arguments):
    with pytest.raises(Exception) as caught, ts.explain_errors():  # noqa: PT011
        function(*arguments)
    return " ".join(caught.value.__notes__[0].split())


def test_a_value_that_two_losses_share_is_named_with_the_loss_that_freed_it():
    def gan(critic, maker):
        fake = maker(torch.rand(4, 3))
        loss_d = F.softplus(critic(fake)).mean()
        loss_d.backward()
        loss_g = F.softplus(-critic(fake)).mean()
        loss_g.backward()

    note = note_of(gan, nn.Linear(2, 1), nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)))
    assert "Here: `fake` (float32 (4, 2)), made at test_graphs.py" in note
    assert "is in this graph and in that of `loss_d`, whose backward" in note
    assert "Fix: write fake.detach()" in note


def test_a_value_made_before_the_backward_is_named_though_the_losses_share_a_name():
    def steps(net):
        features = net(torch.rand(4, 3))
        loss = (features * features).sum()
        loss.backward()
        loss = features.exp().sum()
        loss.backward()

    assert "`features` (float32 (4, 2))" in note_of(steps, nn.Sequential(nn.Linear(3, 2), nn.Sigmoid()))


def test_a_value_that_the_failing_graph_does_not_hold_is_not_named():
    def steps(net):
        other = net(torch.rand(4, 3))
        loss = (other * 1).sum()
        loss.backward()
        loss = net(torch.rand(4, 3)).sum()
        loss.backward()
        loss.backward()

    assert "`other`" not in note_of(steps, nn.Sequential(nn.Linear(3, 2), nn.Sigmoid()))


def test_a_layer_that_overwrites_what_a_backward_needs_is_named_by_its_path():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(3, 4), nn.Sigmoid(), nn.ReLU(inplace=True))
            self.head = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 1))

        def forward(self, x):
            return self.head(self.body(x))

    def train(net):
        net(torch.rand(2, 3)).sum().backward()

    note = note_of(train, Net())
    assert "was changed by `net.body.2` = ReLU(inplace=True)" in note
    assert "net.head" not in note


def test_a_function_that_works_in_place_is_a_line_that_does():
    def train(x):
        gate = torch.sigmoid(x)
        out = F.relu(gate, inplace=True)
        out.sum().backward()

    assert "(out = F.relu(gate, inplace=True))" in note_of(train, torch.zeros(3, requires_grad=True))


def test_what_torch_calls_back_is_not_taken_for_the_users_line():
    class Unit(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, arguments=(), keywords=None):
            return super().__torch_function__(function, types, arguments, keywords or {})

    def product(left, right):
        return left @ right

    note = note_of(product, torch.zeros(2, 3).as_subclass(Unit), torch.zeros(4, 5))
    assert "in product: return left @ right" in note


@pytest.mark.parametrize("path", ["<eval_with_key>.3", "/tmp/torchinductor_me/ab/cab.py"])
def test_code_that_torch_wrote_is_not_the_users(path):
    assert not CrashFrame(path, 3, "forward").is_users
    linecache.checkcache()


def test_what_a_function_returned_was_made_inside_it():
    def load():
        inputs = torch.rand(4, 3)
        targets = torch.rand(4)
        return inputs, targets

    def train(net):
        inputs, targets = load()
        F.nll_loss(net(inputs), targets)

    note = note_of(train, nn.Linear(3, 2))
    assert "targets = torch.rand(4)" in note
    assert "inputs = torch.rand" not in note


def test_a_helper_under_a_decorator_that_switches_gradients_off_is_named():
    def train(net):
        loss = predict(net).sum()
        loss.backward()

    assert "predict (test_graphs.py:" in note_of(train, nn.Linear(3, 2))


@torch.no_grad()
def predict(net):
    return net(torch.rand(4, 3))


def plain_generator_step(maker, critic, rows):
    fake = maker(rows).detach()
    loss = -critic(fake).mean()
    loss.backward()


def in_one_line(maker, critic, rows):
    loss = -critic(maker(rows).detach()).mean()
    loss.backward()


def made_without_gradients(maker, critic, rows):
    with torch.no_grad():
        fake = maker(rows)
    loss = F.softplus(-critic(fake)).mean()
    loss.backward()


def taught(maker, critic, rows):
    with torch.no_grad():
        wanted = maker(rows)
    loss = F.mse_loss(critic(rows), wanted)
    loss.backward()


@pytest.mark.parametrize("step", [plain_generator_step, in_one_line, made_without_gradients])
def test_a_critic_that_is_frozen_by_right_is_not_blamed_for_what_detach_cut(step):
    critic = nn.Linear(3, 3).requires_grad_(False)
    note = note_of(step, nn.Linear(3, 3), critic, torch.rand(4, 3))
    assert "the graph between `maker`, which trains, and the loss was cut at test_graphs.py" in note
    assert "`critic` may stay frozen" in note


def test_a_student_that_is_frozen_is_told_of():
    note = note_of(taught, nn.Linear(3, 3), nn.Linear(3, 3).requires_grad_(False), torch.rand(4, 3))
    assert "no parameter of `critic` requires a gradient" in note
