# SPDX-License-Identifier: Apache-2.0
"""Schedules: landmarks, continuity, what lies past the end, and what steps them."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import truestep as ts

PEAK = 0.25
NAMED = {
    "cosine": lambda o, warmup, total: ts.warmup_cosine(o, warmup_steps=warmup, total_steps=total),
    "cosine to a tenth": lambda o, warmup, total: ts.warmup_cosine(
        o, warmup_steps=warmup, total_steps=total, final=0.1
    ),
    "linear": lambda o, warmup, total: ts.warmup_linear(o, warmup_steps=warmup, total_steps=total),
    "constant": lambda o, warmup, total: ts.warmup_constant(o, warmup_steps=warmup),
    "inverse square root": lambda o, warmup, total: ts.warmup_inverse_sqrt(o, warmup_steps=max(warmup, 1)),
}
FINAL = {"cosine": 0.0, "cosine to a tenth": 0.1, "linear": 0.0, "constant": 1.0}


def rates(make, steps):
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=PEAK)
    schedule = make(optimizer)
    found = []
    for _ in range(steps):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return found


@pytest.mark.parametrize("name", NAMED)
@given(warmup=st.integers(0, 20), rest=st.integers(1, 60))
def test_landmarks_continuity_and_the_time_past_the_end(name, warmup, rest):
    total = warmup + rest
    found = rates(lambda o: NAMED[name](o, warmup, total), total + 10)
    for step in range(warmup):
        assert found[step] == pytest.approx(PEAK * (step + 1) / warmup)
    peak = max(warmup, 1)
    assert found[peak - 1] == pytest.approx(PEAK) or warmup == 0
    assert max(found) == pytest.approx(PEAK)
    falls = [a - b for a, b in zip(found[peak:], found[peak + 1 :], strict=False)]
    assert all(fall >= -1e-12 for fall in falls)
    if name in FINAL:
        assert found[total:] == pytest.approx([PEAK * FINAL[name]] * 10, abs=1e-12)
        assert max([0.0, *falls]) <= PEAK * math.pi / 2 / rest + 1e-12  # no jump
    else:
        assert found[-1] == pytest.approx(PEAK * math.sqrt(peak / (total + 10)))


@given(total=st.integers(4, 200), warmup=st.floats(0.05, 0.9))
def test_one_cycle_is_torchs_and_holds_past_its_end(total, warmup):
    def torchs(optimizer):
        return torch.optim.lr_scheduler.OneCycleLR(
            optimizer, max_lr=PEAK, total_steps=total, pct_start=warmup, cycle_momentum=False
        )

    if warmup * total < 1.01:  # torch divides by zero there
        return
    expected = rates(torchs, total - 1)
    found = rates(lambda o: ts.one_cycle(o, total_steps=total, warmup=warmup), total + 5)
    assert found[: total - 1] == pytest.approx(expected, rel=1e-6, abs=1e-9)
    assert found[total - 1 :] == pytest.approx([PEAK * 4e-6] * 6)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda o: ts.warmup_cosine(o, warmup_steps=10, total_steps=5), "more than total_steps=5"),
        (lambda o: ts.warmup_cosine(o, warmup_steps=-1, total_steps=5), "counted from 0"),
        (lambda o: ts.warmup_linear(o, warmup_steps=0, total_steps=0), "at least one"),
        (lambda o: ts.warmup_constant(o, warmup_steps=-1), "counted from 0"),
        (lambda o: ts.warmup_inverse_sqrt(o, warmup_steps=0), "at least one step of warm-up"),
        (lambda o: ts.one_cycle(o, total_steps=0), "at least one"),
        (lambda o: ts.one_cycle(o, total_steps=9, warmup=1.0), "between 0 and 1"),
        (torch.optim.lr_scheduler.ReduceLROnPlateau, "waits for a metric"),
        (
            lambda o: ts.per_epoch(torch.optim.lr_scheduler.StepLR(o, step_size=3)),
            r"stands around it, not inside\. Write schedule=ts\.per_epoch\(lambda o: StepLR\(o, \.\.\.\)\)",
        ),
        (
            lambda o: ts.per_update(lambda o: torch.optim.lr_scheduler.StepLR(o, step_size=3)),
            r"Write schedule=ts\.per_update\(lambda o: \.\.\.\)",
        ),
        (
            lambda o: ts.per_epoch(ts.warmup_constant),
            r"Write schedule=ts\.per_epoch\(lambda o: \.\.\.\)",
        ),
        (lambda o: 0.1, "returned float; return a torch scheduler"),
        (lambda o: None, "returned NoneType"),
    ],
)
def test_schedules_that_can_not_work_are_refused(make_learner, make, message):
    with pytest.raises(ts.OptionError, match=message):
        make_learner(nn.Linear(1, 1), schedule=make)


class Slow(torch.optim.Optimizer):
    """An optimizer around another one, with groups of its own or with those of the inner one."""

    def __init__(self, inner, *, shares):
        self.inner = inner
        self.__setstate__({"state": {}, "defaults": inner.defaults})
        self.param_groups = inner.param_groups if shares else [dict(g) for g in inner.param_groups]

    def step(self, closure=None):
        return self.inner.step(closure)


_torchs = torch.optim.lr_scheduler
MADE_OVER = {
    "an epoch's": (ts.per_epoch, lambda o: _torchs.CosineAnnealingLR(o, 4)),
    "an update's": (ts.per_update, lambda o: _torchs.StepLR(o, 4)),
    "one cycle": (lambda f: f, lambda o: _torchs.OneCycleLR(o, 1.0, total_steps=9)),
    "ours": (lambda f: f, lambda o: ts.warmup_cosine(o, warmup_steps=2, total_steps=9)),
    "a plateau": (lambda f: f, lambda o: ts.plateau(o, metric="accuracy")),
    "one after another": (
        ts.per_update,
        lambda o: _torchs.SequentialLR(o, [_torchs.ConstantLR(o), _torchs.ExponentialLR(o, 0.5)], [2]),
    ),
    "a chain": (ts.per_epoch, lambda o: _torchs.ChainedScheduler([_torchs.ExponentialLR(o, 0.5)])),
}


@pytest.mark.parametrize("kind", MADE_OVER)
@pytest.mark.parametrize("same_weights", [True, False])
def test_a_schedule_over_another_optimizer_is_refused(make_learner, kind, same_weights):
    counts, make = MADE_OVER[kind]
    net = nn.Linear(1, 1)
    other = torch.optim.SGD((net if same_weights else nn.Linear(1, 1)).parameters(), lr=0.7, momentum=0.9)
    with pytest.raises(
        ts.OptionError, match=r"another optimizer .* an SGD \(lr=0\.7\) .*: schedule=.*lambda o: .*\(o, "
    ) as e:
        make_learner(net, schedule=counts(lambda o: make(other)))
    assert "would keep lr=0.1" in str(e.value)


@pytest.mark.parametrize("kind", MADE_OVER)
@pytest.mark.parametrize("over", [lambda o: o, lambda o: o.inner, lambda o: Slow(o, shares=True)])
@pytest.mark.parametrize("shares", [True, False])
def test_a_schedule_over_what_an_optimizer_holds_or_is_held_by_is_taken(make_learner, kind, over, shares):
    counts, make = MADE_OVER[kind]
    optimizer = lambda p: Slow(torch.optim.SGD(p, lr=0.1, momentum=0.9), shares=shares)
    make_learner(nn.Linear(1, 1), optimizer, schedule=counts(lambda o: make(over(o))))


def step(learner, weight=1.0):
    loss = lambda x: ts.weighted(learner(x).squeeze(1), torch.full((2,), weight))
    return learner.update(loss, torch.ones(2, 1))


def test_a_schedule_counts_applied_updates_and_not_batches(make_learner, make_context):
    context = make_context()
    learner = make_learner(
        nn.Linear(1, 1), context=context, schedule=lambda o: ts.warmup_constant(o, warmup_steps=4)
    )
    assert learner.learning_rate == pytest.approx(0.025)
    step(learner)
    assert learner.learning_rate == pytest.approx(0.05)
    assert bool(step(learner, weight=0.0).skipped)
    context.advance(7)
    assert learner.learning_rate == pytest.approx(0.05)
    step(learner)
    assert learner.learning_rate == pytest.approx(0.075)


@pytest.mark.parametrize(
    "make",
    [
        lambda o: torch.optim.lr_scheduler.StepLR(o, 2, 0.5),
        lambda o: torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(o, 3),
        lambda o: torch.optim.lr_scheduler.SequentialLR(
            o,
            [torch.optim.lr_scheduler.ConstantLR(o, 0.5, 2), torch.optim.lr_scheduler.ExponentialLR(o, 0.5)],
            [2],
        ),
        lambda o: torch.optim.lr_scheduler.CyclicLR(o, 0.01, 0.1, step_size_up=2, cycle_momentum=True),
        lambda o: ts.one_cycle(o, total_steps=20),
    ],
)
def test_any_torch_schedule_moves_every_group_and_goes_on_from_its_state(make_learner, make):
    def new():
        return make_learner(
            nn.Linear(1, 1),
            lambda p: torch.optim.SGD(
                [{"params": [q], "lr": lr} for q, lr in zip(p, (0.1, 0.2), strict=True)], lr=1.0, momentum=0.9
            ),
            schedule=ts.per_update(make),
            name="net",
        )

    def follow(learner, steps):
        found = []
        for _ in range(steps):
            step(learner)
            found.append([group["lr"] for group in learner.optimizers[0].param_groups])
        return found

    whole = new()
    expected = follow(whole, 8)
    assert len({str(rate) for rate in expected}) > 2
    first, second = new(), new()
    follow(first, 3)
    second.load_training_state(first.training_state())
    assert expected[3:] == follow(second, 5)


def test_a_plateau_waits_for_its_metric(make_learner):
    learner = make_learner(
        nn.Linear(1, 1),
        schedule=lambda o: ts.plateau(o, metric="accuracy", mode="max", patience=1, factor=0.5),
    )
    step(learner)
    for accuracy, expected in (
        (0.5, 0.1),
        (0.6, 0.1),
        (0.6, 0.1),
        (0.5, 0.05),
        (0.9, 0.05),
        (float("nan"), 0.05),
    ):
        learner._parts.schedules.logged({"accuracy": accuracy, "loss": 1.0})
        learner._parts.schedules.logged({"loss": 0.0})
        assert learner.learning_rate == pytest.approx(expected)


def test_each_of_two_optimizers_has_its_schedule(make_learner):
    learner = make_learner(
        nn.Linear(3, 3),
        lambda p: ts.muon_with_adamw(p, lr=0.02, adamw_lr=0.01),
        schedule=lambda o: ts.warmup_linear(o, warmup_steps=2, total_steps=4),
    )
    assert [o.param_groups[0]["lr"] for o in learner.optimizers] == [0.01, 0.005]
    for _ in range(4):
        learner.update(lambda x: learner(x).square().sum(1), torch.ones(2, 3))
    assert [o.param_groups[0]["lr"] for o in learner.optimizers] == [0.0, 0.0]
