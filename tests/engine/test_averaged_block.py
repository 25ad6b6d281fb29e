# SPDX-License-Identifier: Apache-2.0
"""Averages in the place of weights: little memory, and weights and averages as they were whatever interrupts."""

import copy
import sys

import pytest
import torch
from torch import nn

import truestep as ts
from truestep.engine import tensor_swap

FILES = ("engine/tensor_swap.py", "engine/moving_averages.py")
TURNS = 50


class Mixed(nn.Module):
    """Weights in several types and layouts, with shared memory and buffers."""

    def __init__(self):
        super().__init__()
        self.wide = nn.Linear(3, 40)
        self.turned = nn.Parameter(torch.randn(40, 2).t())
        self.narrow = nn.Parameter(torch.randn(4).bfloat16())
        self.norm = nn.BatchNorm1d(40)
        self.number = nn.Parameter(torch.tensor(2.0))

    def forward(self, x):
        out = self.norm(self.wide(x)) @ self.turned.t() * self.number
        return out.sum(1) + self.narrow.float().sum()


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(tensor_swap, "HOST_BYTES", 64)


@pytest.fixture(params=[False, True], ids=["weights", "buffers too"])
def learner(make_learner, request):
    torch.manual_seed(0)
    net = make_learner(Mixed(), ema=ts.EMA(0.5, buffers=request.param))
    for _ in range(3):
        net.update(net, torch.randn(6, 3))
    return net


class Interruptions:
    """Raises at a line of the files that put averages in place, counted from the first; so Ctrl+C does."""

    def __init__(self, at):
        self.left = at

    def __enter__(self):
        self._before = sys.gettrace()
        sys.settrace(self._call)

    def __exit__(self, *_):
        sys.settrace(self._before)

    def _call(self, frame, _event, _argument):
        return self._line if frame.f_code.co_filename.endswith(FILES) else None

    def _line(self, _frame, event, _argument):
        if event == "line":
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
        return self._line


def enter_and_leave(net):
    with net.averaged():
        pass


def num_lines(net):
    counting = Interruptions(10**9)
    with counting:
        enter_and_leave(net)
    return 10**9 - counting.left


def test_an_interruption_anywhere_leaves_weights_and_averages(learner, snapshot, same):
    before, lines = snapshot(learner), num_lines(learner)
    assert lines > 4 * TURNS
    hits = 0
    for turn in range(TURNS):
        at = 1 + turn * lines // TURNS
        with Interruptions(at):
            try:
                enter_and_leave(learner)
            except KeyboardInterrupt:
                hits += 1
        assert same(before, snapshot(learner)), at
        assert not learner._parts.shows_average
    assert hits == TURNS
    learner.update(learner, torch.randn(6, 3))


class InterruptedCall:
    """Raises as a function of this name is entered, once: there Python looks for Ctrl+C, before its first line."""

    def __init__(self, name):
        self.name, self.is_left = name, True

    def __call__(self, frame, event, _argument):
        if event == "call" and frame.f_code.co_name == self.name and self.is_left:
            self.is_left = False
            raise KeyboardInterrupt


@pytest.mark.parametrize("name", ["_call_until_complete", "_leave_block", "hide", "back", "show", "begin"])
def test_an_interruption_as_a_function_is_entered_leaves_weights_and_averages(learner, snapshot, same, name):
    before, interrupted, traced = snapshot(learner), InterruptedCall(name), sys.gettrace()
    sys.settrace(interrupted)
    try:
        with pytest.raises(KeyboardInterrupt):
            enter_and_leave(learner)
    finally:
        sys.settrace(traced)
    assert not interrupted.is_left
    assert same(before, snapshot(learner))
    assert not learner._parts.shows_average


def test_a_state_taken_inside_is_the_one_outside(learner, same, snapshot):
    before, copies = snapshot(learner), copy.deepcopy(learner.training_state())
    with learner.averaged() as module:
        assert same(copies, learner.training_state())
        shown = {name: tensor.clone() for name, tensor in module.named_parameters()}
        with learner.averaged():  # of one in another nothing is seen
            assert same(shown, dict(module.named_parameters()))
        assert learner._parts.shows_average
        assert same(shown, dict(module.named_parameters()))
        for name, mean in copies["averages"].items():
            if name in shown:
                assert same(shown[name], mean.to(shown[name].dtype))
    assert same(before, snapshot(learner))


def test_an_exception_inside_leaves_weights_and_averages(learner, same, snapshot):
    before = snapshot(learner)

    def fail():
        learner(torch.randn(6, 3))  # fills buffers, in training mode
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), learner.averaged():
        fail()
    after = snapshot(learner)
    assert same(before["state"]["averages"], after["state"]["averages"])
    assert all(
        same(before["tensors"][name], after["tensors"][name]) for name, _ in learner.named_parameters()
    )


def test_two_parameters_in_one_memory_come_back(make_learner, same, snapshot):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Parameter(torch.randn(50))
            self.second = nn.Parameter(self.first.data[:30])

        def forward(self, x):
            return x @ self.first + x[:, :30] @ self.second

    net = make_learner(Twice(), ema=ts.EMA(0.5))
    for _ in range(2):
        net.update(net, torch.randn(4, 50))
    before = snapshot(net)
    enter_and_leave(net)
    assert same(before, snapshot(net))


def test_weights_that_are_written_inside_are_told_of(make_learner):
    net = make_learner(nn.Linear(3, 1), ema=ts.EMA(0.5))
    net.update(lambda x: net(x).squeeze(1), torch.randn(6, 3))
    now = net.weight.detach().clone()
    with (
        pytest.warns(UserWarning, match=r"Weights of .* were written to inside averaged\(\)"),
        net.averaged() as module,
    ):
        module.load_state_dict({"weight": torch.zeros(1, 3), "bias": torch.zeros(1)})
    assert torch.equal(net.weight, now)


def test_the_block_needs_memory_for_a_piece_alone(make_learner, monkeypatch):
    monkeypatch.setattr(tensor_swap, "HOST_BYTES", 1 << 16)
    net = make_learner(nn.Linear(1000, 1000), ema=ts.EMA(0.5))
    most = 0

    class Counting(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal most
            out = func(*args, **(kwargs or {}))
            if func is torch.ops.aten.clone.default:
                most = max(most, out.nbytes)
            return out

    with Counting():
        enter_and_leave(net)
    assert 0 < most <= 1 << 16


def test_autocast_casts_what_stands_in_the_place_of_the_weights(make_learner):
    """It keeps its casts of weights to the end of its block, which an update is: the teacher's were the student's."""
    net = make_learner(nn.Linear(8, 4), ema=ts.EMA(0.9))
    rows = torch.randn(6, 8)
    for _ in range(3):
        net.update(lambda x: net(x).square().mean(1), rows)

    def scores():
        return net(rows).detach().clone()

    def alone(made):
        with torch.autocast("cpu", torch.bfloat16):
            return made()

    student = alone(scores)
    with net.averaged():
        teacher = alone(scores)
    assert not torch.equal(student, teacher)
    with torch.autocast("cpu", torch.bfloat16):
        found = [scores()]
        with net.averaged():
            found.append(scores())
        found.append(scores())
    assert all(map(torch.equal, found, (student, teacher, student)))
