# SPDX-License-Identifier: Apache-2.0
"""The plan of an update is decided once, and again when something changes that it was decided by."""

import gc
import sys

import pytest
import torch
from torch import nn

import truestep as ts
from truestep.core.errors import OptionError
from truestep.engine.plan import UpdatePlan

INPUTS = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 1)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.seen = self.seen + 1  # another tensor in each forward
        return self.second(self.first(x).relu()).squeeze(1)


def plan_of(*nets):
    return UpdatePlan.of([net._parts for net in nets])


def update(net):
    return net.update(lambda batch: net(batch).square(), INPUTS)


@pytest.fixture
def net(make_learner, make_context):
    torch.manual_seed(0)
    return make_learner(Net(), lambda p: torch.optim.AdamW(p, lr=0.1), make_context(), name="net")


def test_it_is_decided_once(net):
    before = plan_of(net)
    for _ in range(3):
        update(net)
        net.module.eval()
        net.module.first.requires_grad_(False)
        net.optimizers[0].param_groups[0]["lr"] = 0.2
    assert plan_of(net) is before


CHANGES = {
    "a parameter": lambda module: setattr(module.first, "bias", nn.Parameter(torch.ones(4))),
    "a parameter of an inner part": lambda module: module.first.register_parameter(
        "scale", nn.Parameter(torch.ones(1))
    ),
    "a part": lambda module: setattr(module, "second", nn.Linear(4, 1)),
    "a part more": lambda module: module.add_module("third", nn.Linear(4, 1)),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_is_replaced_or_added_between_two_updates_is_refused_at_the_next(net, what):
    update(net)
    CHANGES[what](net.module)
    before = [parameter.detach().clone() for parameter in net.parameters()]
    for _ in range(2):
        with pytest.raises(OptionError, match="replaced or added"):
            update(net)
    assert all(map(torch.equal, before, net.parameters()))


def test_what_is_added_frozen_is_let_alone(net):
    update(net)
    before = plan_of(net)
    net.module.third = nn.Linear(1, 1).requires_grad_(False)
    update(net)
    assert plan_of(net) is not before


def test_a_buffer_that_comes_later_is_put_back_with_the_others(make_learner, make_context, net):
    other = make_learner(Net(), context=net._parts.context, name="other")
    update(net)
    other.module.register_buffer("count", torch.zeros(1))

    def loss(batch):
        other.module.count += 1
        return net(batch).square()

    net.update(loss, INPUTS)
    assert other.module.count == 0


def test_changes_elsewhere_cost_nothing(net):
    before = plan_of(net)
    elsewhere = nn.Sequential(nn.Linear(2, 2))
    elsewhere[0].weight = nn.Parameter(torch.zeros(2, 2))
    assert plan_of(net) is before


def test_another_learner_makes_another_plan(make_learner, net):
    before = plan_of(net)
    other = make_learner(Net(), context=net._parts.context, name="other")
    assert plan_of(net) is not before
    assert plan_of(net).isolation is not None
    assert plan_of(net, other).isolation is None


def test_each_learner_joins_at_its_start(make_learner, net):
    context = net._parts.context
    late = make_learner(Net(), context=context, name="late", starts_at=2)
    taking_part = []
    for step in (1, 2, 3, 1):
        context.advance(step)
        plan = plan_of(net, late)
        taking_part.append([parts.name for parts in plan.learners])
        assert plan_of(net, late) is plan
    assert taking_part == [["net"], ["net", "late"], ["net", "late"], ["net"]]


def test_the_average_in_place_of_the_weights_is_seen_without_a_new_plan(make_learner, make_context):
    net = make_learner(Net(), context=make_context(), ema=ts.EMA())
    update(net)
    with net.averaged(), pytest.raises(OptionError, match="averaged"):
        update(net)
    update(net)


# Of Python functions; 92 before there were plans. What runs between torch's kernels is most of what a small step costs.
MOST_CALLS = 58


def test_an_update_makes_few_calls_and_no_more_for_more_parameters(make_learner, make_context):
    """Time can't be asserted; calls can: each costs up to a microsecond where the last step has driven it from the caches."""
    assert calls_of_an_update(make_learner, make_context, width=1) <= MOST_CALLS
    assert calls_of_an_update(make_learner, make_context, width=1) == calls_of_an_update(
        make_learner, make_context, width=20
    )


def calls_of_an_update(make_learner, make_context, width):
    module = nn.Sequential(*(nn.Linear(3, 3) for _ in range(width)))
    net = make_learner(module, lambda p: torch.optim.AdamW(p, lr=0.1), make_context())
    batch, count = (INPUTS, INPUTS), 0

    def loss(batch):
        return module(batch[0]).square().mean(1)

    def note(frame, event, _):
        nonlocal count
        count += event == "call" and "truestep" in frame.f_globals.get("__name__", "")

    gc.collect()
    gc.disable()  # what it would finalize in the midst, of another test's, is no call of this update
    try:
        for step in range(1, 6):
            net._parts.context.advance(step)
            sys.setprofile(note if step == 5 else None)
            net.update(loss, batch)
    finally:
        sys.setprofile(None)
        gc.enable()
    return count
