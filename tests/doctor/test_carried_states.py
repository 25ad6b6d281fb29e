# SPDX-License-Identifier: Apache-2.0
"""A state that goes from batch to batch makes no evaluation random; what is drawn, and a figure that moves in eval mode, does."""

import collections

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from truestep.doctor.runtime.watch import Watch, WatchOptions
from truestep.doctor.selection import selection_of


class Net(nn.Module):
    """A network whose middle is written out in each case: `middle(net, hidden)`."""

    def __init__(self, middle):
        super().__init__()
        self.first, self.cell, self.head = nn.Linear(6, 8), nn.GRUCell(8, 8), nn.Linear(8, 3)
        self.long, self.back = nn.LSTM(8, 8, batch_first=True), nn.Linear(8, 8)
        self.register_buffer("kept", torch.zeros(1, 8))
        self.register_buffer("mean", torch.zeros(8))
        self.register_buffer("count", torch.zeros(()))
        self.middle, self.state, self.memory = middle, None, collections.deque(maxlen=2)
        self.held, self.numbers = {}, np.random.default_rng(0)
        self.generator = torch.Generator().manual_seed(0)

    def forward(self, x):
        return self.head(self.middle(self, self.first(x)))


def given_anew(net, h):
    h = net.cell(h, net.kept.expand(len(h), -1))
    net.kept = h.detach().mean(0, keepdim=True)
    return h


def written_to(net, h):
    h = net.cell(h, net.kept.expand(len(h), -1).clone())
    net.kept.copy_(h.detach().mean(0, keepdim=True))
    return h


def made_at_first(net, h):
    if net.state is None:
        net.state = h.new_zeros(len(h), 8)
    net.state = net.cell(h, net.state).detach()
    return net.state


def pair_of_states(net, h):
    out, state = net.long(h.unsqueeze(1), net.state)
    net.state = tuple(each.detach() for each in state)
    return out.squeeze(1)


def in_a_dict(net, h):
    h = net.cell(h, net.held.get("h", torch.zeros(len(h), 8)))
    net.held["h"] = h.detach()
    return h


def memory_of_two(net, h):
    net.memory.append(h.detach().tanh())
    with_memory = torch.stack(list(net.memory)).mean(0) if len(net.memory) > 1 else h
    net.memory[-1] = with_memory.detach()
    return net.back(with_memory).tanh()


def leaky_reservoir(net, h):
    net.kept = 0.7 * net.kept + 0.3 * torch.tanh(h.mean(0, keepdim=True) + net.back(net.kept)).detach()
    return h + net.kept


def leaky_neurons(net, h):
    before = net.state if net.state is not None else torch.zeros_like(h)
    net.state = (0.9 * before + h).detach()
    return torch.sigmoid(5 * (net.state - 1))


def last_output(net, h):
    before, net.state = net.state, h.detach().relu()
    h = h if before is None else h + net.back(before)
    net.state = h.detach()
    return h


def with_data(net, h):
    h = net.cell(h, net.kept.expand(len(h), -1) + 0)
    net.kept.data = h.mean(0, keepdim=True).data
    return h


def normalised_first(net, h):
    h = F.layer_norm(h, (8,))
    net.kept = torch.tanh(net.back(net.kept + h.mean(0, keepdim=True))).detach()
    return h * (1 + net.kept)


RIGHT = [given_anew, written_to, made_at_first, pair_of_states, in_a_dict, memory_of_two, leaky_reservoir]
RIGHT += [leaky_neurons, last_output, with_data, normalised_first]


def running_mean(net, h):
    net.mean = 0.9 * net.mean + 0.1 * h.detach().mean(0)
    return h - net.mean


def running_mean_in_place(net, h):
    out = h - net.mean
    net.mean.mul_(0.9).add_(h.detach().mean(0), alpha=0.1)
    return out


def running_mean_by_lerp(net, h):
    net.mean.lerp_(h.detach().mean(0), 0.05)
    return h / (1 + net.mean.abs())


def running_mean_under_no_grad(net, h):
    with torch.no_grad():
        net.mean.copy_(0.99 * net.mean + 0.01 * h.mean(0))
    return h - net.mean


def running_sum(net, h):
    net.mean += h.detach().sum(0)
    return h - 0.01 * net.mean


def batches_counted(net, h):
    net.count += 1
    return h / (1 + 0.1 * net.count)


def made_at_first_and_averaged(net, h):
    now = h.detach().var(0)
    net.state = now if net.state is None else 0.5 * net.state + 0.5 * (now + 0.1 * len(net.held))
    net.held[len(net.held)] = 1
    return h / (net.state + 1).sqrt()


def normal_noise(net, h):
    return h + 0.1 * torch.randn(8)


def noise_of_own_generator(net, h):
    return h + 0.1 * torch.randn(8, generator=net.generator)


def noise_of_numpy(net, h):
    return h + 0.1 * torch.from_numpy(net.numbers.normal(size=8)).float()


def dropped_whatever_the_mode(net, h):
    return F.dropout(h, 0.5)


def layer_made_in_forward(net, h):
    return nn.Linear(8, 8)(h)


def state_and_noise(net, h):
    return F.dropout(given_anew(net, h), 0.2)


def noise_kept_in_the_state(net, h):
    net.state = (h + torch.randn_like(h)).detach() if net.state is None else net.state + torch.randn_like(h)
    return h + net.state


def calls_counted_by_python(net, h):
    net.held["calls"] = net.held.get("calls", 0) + 1
    return h / net.held["calls"]


WRONG = [running_mean, running_mean_in_place, running_mean_by_lerp, running_mean_under_no_grad, running_sum]
WRONG += [batches_counted, made_at_first_and_averaged, normal_noise, noise_of_own_generator, noise_of_numpy]
WRONG += [dropped_whatever_the_mode, layer_made_in_forward, state_and_noise, noise_kept_in_the_state]
WRONG += [calls_counted_by_python]
MOVING = WRONG[:6]


def told(middle):
    torch.manual_seed(0)
    net = Net(middle)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with Watch(WatchOptions(selection_of(["EVAL012"], ()), probe=True)) as watch:
        for _ in range(2):
            optimizer.zero_grad()
            F.cross_entropy(net(torch.randn(5, 6)), torch.randint(3, (5,))).backward()
            optimizer.step()
    assert watch.failures == []
    assert watch.not_run() == {}
    return [each.message for each in watch.findings]


@pytest.mark.parametrize("middle", RIGHT, ids=lambda each: each.__name__)
def test_a_state_from_batch_to_batch_is_not_asked_for(middle):
    assert told(middle) == []


@pytest.mark.parametrize("middle", WRONG, ids=lambda each: each.__name__)
def test_what_is_drawn_and_figures_that_move_in_eval_mode_are_told(middle):
    (message,) = told(middle)
    assert message.startswith("In eval mode two passes over the same input differ")
    assert ("where a figure that forward keeps moves in eval mode, too" in message) is (middle in MOVING)


class Loss(nn.Module):
    """A loss that applies a network to noisy inputs, or one whose network drops whatever the mode."""

    def __init__(self, drops):
        super().__init__()
        self.net = Net(dropped_whatever_the_mode if drops else given_anew)
        self.is_noisy = not drops

    def forward(self, x, y):
        noisy = x + 0.1 * torch.randn_like(x) if self.is_noisy else x
        return F.cross_entropy(self.net(noisy), y)


@pytest.mark.parametrize("drops", [False, True])
def test_a_loss_that_draws_is_no_answer_but_a_layer_of_its_network_that_does_is_told(drops):
    torch.manual_seed(0)
    loss = Loss(drops)
    optimizer = torch.optim.SGD(loss.parameters(), lr=0.01)
    with Watch(WatchOptions(selection_of(["EVAL012"], ()), probe=True)) as watch:
        optimizer.zero_grad()
        loss(torch.randn(5, 6), torch.randint(3, (5,))).backward()
        optimizer.step()
    assert watch.failures == []
    assert len(watch.findings) == drops
