# SPDX-License-Identifier: Apache-2.0
"""What is decided on the device and learnt late; the parts that need no device. The rest: test_delayed_reports_gpu.py."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import truestep as ts
from truestep.engine.deferred_flags import DelayedUpdateReports, UpdateReport
from truestep.engine.loss_results import LossOutput
from truestep.engine.loss_sums import LossTotals
from truestep.engine.optimizers import prepare_optimizer_momentum
from truestep.engine.step import apply_update_report, receive_update_report, step_optimizers


def new(make_learner, make_context, policy, **options):
    return make_learner(
        nn.Linear(2, 1),
        context=make_context(nonfinite=policy),
        schedule=lambda o: ts.warmup_constant(o, warmup_steps=9),
        **options,
    )


def sums_of(loss, weight=None):
    sums = LossTotals()
    sums.set_expected_examples(2)
    values = torch.full((2,), loss)
    sums.add(LossOutput(values, None if weight is None else torch.full((2,), weight), {}, False))
    return sums


@pytest.mark.parametrize(
    ("policy", "loss", "weight", "norm", "overflow", "expected"),
    [
        ("raise", 1.0, None, None, 0.0, 0.0),
        ("raise", math.nan, None, None, 0.0, 1.0),
        ("skip", 1.0, None, math.inf, 0.0, 1.0),
        ("keep", math.nan, None, math.nan, 0.0, 0.0),
        ("keep", 1.0, None, 1.0, 1.0, 1.0),
        ("keep", 1.0, 0.0, 1.0, 0.0, 1.0),
        ("raise", 1.0, 0.5, 1.0, 0.0, 0.0),
    ],
)
def test_the_flag(make_learner, make_context, policy, loss, weight, norm, overflow, expected):
    learner = new(make_learner, make_context, policy, precision="fp16-mixed")
    learner._parts.policy.scaler.found_inf = torch.tensor(overflow)
    norm = None if norm is None else torch.tensor(norm)
    assert expected == float(learner._parts.policy.skip_flag_on_device(sums_of(loss, weight), norm))


def test_schedule_and_counters_follow_what_was_learnt(make_learner, make_context):
    learner = new(make_learner, make_context, "skip")
    step_optimizers(learner._parts)  # torch's schedules ask for a step first
    apply_update_report(learner._parts, UpdateReport(step=1, skipped=False, empty=False, loss=1.0, norm=0.0))
    rate = learner.learning_rate
    apply_update_report(
        learner._parts, UpdateReport(step=1, skipped=True, empty=False, loss=math.nan, norm=0.0)
    )
    assert (1, 1, 1, rate) == (
        learner._parts.counters.updates,
        learner._parts.counters.skipped,
        learner._parts.counters.skipped_in_a_row,
        learner.learning_rate,
    )


def test_a_batch_without_weight_is_no_error(make_learner, make_context):
    learner = new(make_learner, make_context, "raise")
    apply_update_report(
        learner._parts, UpdateReport(step=1, skipped=True, empty=True, loss=math.nan, norm=0.0)
    )
    assert learner._parts.counters.skipped == 1
    with pytest.raises(ts.NonFiniteError):
        apply_update_report(
            learner._parts, UpdateReport(step=1, skipped=True, empty=False, loss=math.nan, norm=0.0)
        )


def test_overflows_without_end_become_an_error(make_learner, make_context):
    learner = new(make_learner, make_context, "raise", precision="fp16-mixed")
    for _ in range(99):
        apply_update_report(
            learner._parts, UpdateReport(step=1, skipped=True, empty=False, loss=1.0, norm=math.inf)
        )
    with pytest.raises(ts.NonFiniteError):
        apply_update_report(
            learner._parts, UpdateReport(step=1, skipped=True, empty=False, loss=1.0, norm=math.inf)
        )


@pytest.mark.parametrize("flag", [0.0, 1.0])
def test_statistics_go_back_where_the_flag_is_set(make_learner, flag):
    learner = make_learner(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)))
    learner._parts.buffers.keep()
    learner.module[1].running_mean.fill_(math.nan)
    learner.module[1].num_batches_tracked.add_(1)
    learner._parts.buffers.restore_where(torch.tensor(flag))
    assert bool(flag) == bool((learner.module[1].running_mean == 0).all())
    assert int(learner.module[1].num_batches_tracked) == 1 - int(flag)


OPTIMIZERS = {
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-2, fused=True),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
}


def decided_on_the_device(learner):
    """Let a learner on the CPU decide as one on a GPU does; torch's fused optimizers for the CPU take the flag, too."""
    parts = learner._parts
    parts.delayed = DelayedUpdateReports()
    if parts.policy.finite_check is not None:
        parts.policy.finite_check._seen = None
    for optimizer in parts.optimizers:
        prepare_optimizer_momentum(optimizer)
    return learner


def learner_of(make_learner, make_context, policy, *, late, optimizer="adamw", **options):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Dropout(0.2), nn.Linear(3, 1))
    learner = make_learner(
        module,
        OPTIMIZERS[optimizer],
        make_context(nonfinite=policy),
        name="net",
        ema=ts.EMA(),
        schedule=lambda o: ts.warmup_constant(o, warmup_steps=9),
        **options,
    )
    return decided_on_the_device(learner) if late else learner


GOOD = torch.randn(6, 2, generator=torch.Generator().manual_seed(0))
BATCHES = {
    "good": (GOOD, torch.ones(6)),
    "nan": (GOOD * math.nan, torch.ones(6)),
    "inf": (GOOD * math.inf, torch.ones(6)),
    "empty": (GOOD, torch.zeros(6)),
}
kinds = st.lists(st.sampled_from([*BATCHES, "good", "good"]), min_size=1, max_size=8)
how = {"clip": st.sampled_from([None, ts.ClipNorm(1.0)]), "optimizer": st.sampled_from([*OPTIMIZERS])}


def update(learner, kind, block):
    loss = lambda batch: ts.weighted(learner(batch[0]).squeeze(1).square(), batch[1])
    if not block:
        return learner.update(loss, BATCHES[kind])
    with learner.accumulating() as made:
        made.backward(loss(BATCHES[kind]))
    return made.result


@settings(max_examples=25)
@given(kinds=kinds, block=st.booleans(), **how)
def test_an_error_names_its_step_and_the_update_that_it_meets_leaves_no_trace(
    make_learner, make_context, snapshot, same, kinds, block, clip, optimizer
):
    """Who catches the error and makes the update again ends where a run ends that skips."""
    new = lambda policy: learner_of(
        make_learner, make_context, policy, late=True, optimizer=optimizer, clip=clip
    )
    raising, skipping = new("raise"), new("skip")
    told, bad = [], [step for step, kind in enumerate(kinds, 1) if kind in ("nan", "inf")]
    for step, kind in enumerate(kinds, 1):
        for learner in (raising, skipping):
            learner._parts.context.advance(step)
        update(skipping, kind, block)
        before = {name: value.clone() for name, value in raising.module.state_dict().items()}
        try:
            update(raising, kind, block)
        except ts.NonFiniteError as error:
            told.append(str(error))
            assert same(before, dict(raising.module.state_dict()))
            assert all(weight.grad is None for weight in raising.parameters())
            update(raising, kind, block)
    try:
        receive_update_report(raising._parts)
    except ts.NonFiniteError as error:
        told.append(str(error))
    assert [f"at step {step};" in text for step, text in zip(bad, told, strict=True)] == [True] * len(bad)
    assert same(snapshot(skipping), snapshot(raising))


@settings(max_examples=25)
@given(
    kinds=kinds,
    precision=st.sampled_from(["float32", "fp16-mixed"]),
    policy=st.sampled_from(["skip", "keep"]),
    **how,
)
def test_what_is_decided_late_is_what_is_decided_at_once(
    make_learner, make_context, snapshot, same, kinds, precision, policy, clip, optimizer
):
    """Weights, statistics, schedules, counters and the loss scale bit for bit; averages to rounding."""
    options = {"optimizer": optimizer, "clip": clip, "precision": precision}
    if precision == "fp16-mixed":
        options["loss_scale"] = ts.LossScale(initial=2.0**10, growth_interval=2)
    if policy == "keep" and precision == "float32":
        kinds = [kind for kind in kinds if kind == "good"]
    late, at_once = (
        learner_of(make_learner, make_context, policy, late=late, **options) for late in (True, False)
    )
    for step, kind in enumerate(kinds, 1):
        for learner in (late, at_once):
            learner._parts.context.advance(step)
            update(learner, kind, False)
    states = [states_of(learner, snapshot) for learner in (late, at_once)]
    averages = [list(state["state"].pop("averages").values()) for state in states]
    assert same(*states)
    torch.testing.assert_close(*averages, equal_nan=True)


def all_zero(of_weight):
    return not any(bool(value.any()) for value in of_weight.values())


def states_of(learner, snapshot):
    """All but states of zeros, which are there before the first step where the device decides, and gradients, which are spent."""
    state = snapshot(learner)
    state.pop("gradients")
    for optimizer in state["state"]["optimizers"]:
        for number in [number for number, of_weight in optimizer["state"].items() if all_zero(of_weight)]:
            del optimizer["state"][number]
    return state


def test_weights_of_zero_leave_the_loss_scale_as_it_was(make_learner, make_context):
    for late in (True, False):
        scale = ts.LossScale(initial=8.0, growth_interval=2)
        net = learner_of(
            make_learner, make_context, "raise", late=late, precision="fp16-mixed", loss_scale=scale
        )
        for kind in ("good", "empty", "empty", "empty"):
            update(net, kind, False)
        state = net._parts.policy.scaler.state_dict()
        assert (state["scale"], state["_growth_tracker"]) == (8.0, 1)


def test_a_loss_that_is_not_finite_is_no_overflow_that_a_scale_could_mend(make_learner, make_context):
    for late in (True, False):
        net = learner_of(make_learner, make_context, "skip", late=late, precision="fp16-mixed")
        for _ in range(3):
            update(net, "nan", False)
        receive_update_report(net._parts)
        assert (net._parts.counters.skipped_in_a_row, net._parts.counters.overflows_in_a_row) == (3, 0)
