# SPDX-License-Identifier: Apache-2.0
"""What is decided on the device and learnt late; the parts that need no device. The rest: test_delayed_reports_gpu.py."""

import math

import pytest
import torch
from torch import nn

import truestep as ts
from truestep.engine.delayed_reports import UpdateReport
from truestep.engine.losses import LossOutput
from truestep.engine.step import follow_update_report, step_optimizers
from truestep.engine.sums import LossTotals


def new(make_learner, make_context, policy, **options):
    return make_learner(
        nn.Linear(2, 1),
        context=make_context(nonfinite=policy),
        schedule=lambda o: ts.warmup_constant(o, warmup_steps=9),
        **options,
    )


def sums_of(loss, weight=None):
    sums = LossTotals()
    sums.expect(2)
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
    assert expected == float(learner._parts.policy.device_flag(sums_of(loss, weight), norm))


def test_schedule_and_counters_follow_what_was_learnt(make_learner, make_context):
    learner = new(make_learner, make_context, "skip")
    step_optimizers(learner._parts)  # torch's schedules ask for a step first
    follow_update_report(learner._parts, UpdateReport(skipped=False, empty=False, loss=1.0, norm=0.0))
    rate = learner.learning_rate
    follow_update_report(learner._parts, UpdateReport(skipped=True, empty=False, loss=math.nan, norm=0.0))
    assert (1, 1, 1, rate) == (
        learner._parts.counters.updates,
        learner._parts.counters.skipped,
        learner._parts.counters.skipped_in_a_row,
        learner.learning_rate,
    )


def test_a_batch_without_weight_is_no_error(make_learner, make_context):
    learner = new(make_learner, make_context, "raise")
    follow_update_report(learner._parts, UpdateReport(skipped=True, empty=True, loss=math.nan, norm=0.0))
    assert learner._parts.counters.skipped == 1
    with pytest.raises(ts.NonFiniteError):
        follow_update_report(learner._parts, UpdateReport(skipped=True, empty=False, loss=math.nan, norm=0.0))


def test_overflows_without_end_become_an_error(make_learner, make_context):
    learner = new(make_learner, make_context, "raise", precision="fp16-mixed")
    for _ in range(99):
        follow_update_report(learner._parts, UpdateReport(skipped=True, empty=False, loss=1.0, norm=math.inf))
    with pytest.raises(ts.NonFiniteError):
        follow_update_report(learner._parts, UpdateReport(skipped=True, empty=False, loss=1.0, norm=math.inf))


@pytest.mark.parametrize("flag", [0.0, 1.0])
def test_statistics_go_back_where_the_flag_is_set(make_learner, flag):
    learner = make_learner(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)))
    learner._parts.buffers.keep()
    learner.module[1].running_mean.fill_(math.nan)
    learner.module[1].num_batches_tracked.add_(1)
    learner._parts.buffers.restore_where(torch.tensor(flag))
    assert bool(flag) == bool((learner.module[1].running_mean == 0).all())
    assert int(learner.module[1].num_batches_tracked) == 1 - int(flag)
