# SPDX-License-Identifier: Apache-2.0
"""What an update asks of a strategy, and when; and what every strategy of the table promises on one process."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import truestep as ts
from truestep.engine.strategies import STRATEGIES, BatchPlacing, SingleProcess
from truestep.engine.strategies.single import WholeBatch

INPUTS, LABELS = torch.randn(8, 3, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 2
KINDS = ["whole", "parts", "auto", "weighted", "accumulating", "LBFGS", "clip"]


class TwinBatch(WholeBatch):
    def place(self, count, num_parts=1, *, may_be_as_given=False):
        return BatchPlacing(0, count, 2 * (count or 0), num_parts)


class Twins(SingleProcess):
    """Stands for two processes that hold the same part: so their whole batch has this process's gradient, twice its sum."""

    def __init__(self):
        self.calls, self.division = [], TwinBatch()

    def hooks(self, learners, names):
        self.parameters = [parameter for weights in learners for parameter in weights.parameters]
        return self

    def begin(self):
        assert all(parameter.grad is None for parameter in self.parameters)
        self.calls.append("begin")

    def before_backward(self, values, *, is_last):
        self.calls.append("last backward" if is_last else "backward")

    def gradients_ready(self, sums):
        self.calls.append("ready")
        with torch.no_grad():
            for parameter in self.parameters:
                parameter.grad.mul_(2)

    def decide(self, sums):
        self.calls.append("decide")
        sums.total = 2 * sums.total


class LoneWorld:
    """A world of one process: what a strategy exchanges is its own."""

    rank = num_gathered = step = 0
    num_given, shares_given, sums_on_host = None, None, False
    size = 1

    def later(self, what, *numbers, called=""):
        return SimpleNamespace(wait=lambda: [list(numbers)])

    def meet(self, what, *numbers):
        return [list(numbers)]

    def share_bytes(self, mine, what):
        return [mine]

    def reduce(self, tensor):
        return None

    def wait_all(self, works, what):
        pass

    def numbers_of(self, tensor, what):
        return tensor.tolist()


def train(make_learner, make_context, kind, strategy):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    make = torch.optim.LBFGS if kind == "LBFGS" else lambda p: torch.optim.AdamW(p, lr=0.1)
    clip = ts.ClipNorm(0.01) if kind == "clip" else None
    context = make_context(strategy=strategy)
    net = make_learner(module, make, context, clip=clip, name="net")

    def loss(batch):
        values = F.cross_entropy(net(batch[0]), batch[1], reduction="none")
        return ts.weighted(values, batch[1].float()) if kind == "weighted" else values

    for step in range(1, 4):
        context.advance(step)
        if kind == "accumulating":
            with net.accumulating(weight=16.0 if isinstance(strategy, Twins) else 8.0) as update:
                for part in (slice(0, 3), slice(3, 8)):
                    update.backward(loss((INPUTS[part], LABELS[part])))
        else:
            micro_batch = {"parts": 3, "auto": "auto"}.get(kind)
            net.update(loss, (INPUTS, LABELS), micro_batch=micro_batch)
    return list(net.parameters())


@pytest.mark.parametrize("kind", KINDS)
def test_what_other_processes_hold_enters_through_the_hooks_alone(make_learner, make_context, kind):
    alone = train(make_learner, make_context, kind, SingleProcess())
    twins = train(make_learner, make_context, kind, Twins())
    assert all(map(torch.equal, alone, twins))


# where weights are divided there must be others, see test_split_distributed.py
@pytest.mark.parametrize("name", [name for name, each in STRATEGIES.items() if not each.divides_weights])
@pytest.mark.parametrize("kind", KINDS)
def test_every_strategy_has_the_bits_of_one_process_on_one(make_learner, make_context, kind, name):
    alone = train(make_learner, make_context, kind, SingleProcess())
    assert all(
        map(torch.equal, alone, train(make_learner, make_context, kind, STRATEGIES[name](LoneWorld())))
    )


@pytest.mark.parametrize(
    ("kind", "calls"),
    [
        ("whole", ["begin", "last backward", "ready", "decide"]),
        ("parts", ["begin", "backward", "backward", "last backward", "ready", "decide"]),
        ("auto", ["begin", "backward", "ready", "decide"]),
        ("accumulating", ["begin", "backward", "backward", "ready", "decide"]),
    ],
)
def test_the_hooks_are_called_in_order(make_learner, make_context, kind, calls):
    strategy = Twins()
    train(make_learner, make_context, kind, strategy)
    assert strategy.calls == 3 * calls


def test_an_update_that_fails_is_void(make_learner, make_context):
    strategy = Twins()
    net = make_learner(nn.Linear(1, 1), context=make_context(strategy=strategy))

    def broken(_):
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        net.update(broken, INPUTS)
    assert strategy.calls[-1] == "begin"
    assert "ready" not in strategy.calls


def test_draws_begin_where_the_part_lies(make_learner, make_context):
    class Second(WholeBatch):
        def place(self, count, num_parts=1, *, may_be_as_given=False):
            return BatchPlacing(4, count, 8, num_parts)

    drawn, second = [], SingleProcess()
    second.division = Second()

    def loss(batch):
        drawn.append(ts.rand(len(batch)))
        return net(batch).squeeze(1)

    net = make_learner(nn.Linear(3, 1), context=make_context())
    net.update(loss, INPUTS)
    net = make_learner(nn.Linear(3, 1), context=make_context(strategy=second))
    net.update(loss, INPUTS[4:])
    assert torch.equal(drawn[0][4:], drawn[1])
