# SPDX-License-Identifier: Apache-2.0
"""SimCLR with a momentum teacher: a contrastive loss of the whole batch, beside the loop written by hand."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import truestep as ts

STEPS, BATCH, MOMENTUM = 15, 13, 0.9


def new_module():
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 8))


def batches():
    """Two views of each example: the same draws for both loops."""
    draw = torch.Generator().manual_seed(4)
    for _ in range(STEPS):
        seen = torch.randn(BATCH, 6, generator=draw)
        views = [seen + 0.1 * torch.randn(BATCH, 6, generator=draw) for _ in range(2)]
        yield tuple(views)


def contrast(student, teacher, views):
    """Each view of the student against the teacher's other views of the whole batch: no mean of examples' losses."""
    with torch.no_grad():
        goals = [F.normalize(teacher(view), dim=1) for view in views]
    total = 0.0
    for view, goal in zip(views, reversed(goals), strict=True):
        scores = F.normalize(student(view), dim=1) @ goal.T / 0.2
        total = total + F.cross_entropy(scores, torch.arange(len(view)))
    return total / 2


def by_hand():
    student = new_module()
    teacher = AveragedModel(student, multi_avg_fn=get_ema_multi_avg_fn(MOMENTUM), use_buffers=True)
    teacher.update_parameters(student)  # it starts as the student
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1, momentum=0.9, fused=True)
    for views in batches():
        teacher.eval()
        optimizer.zero_grad()
        contrast(student, teacher, views).backward()
        optimizer.step()
        teacher.update_parameters(student)
    return student, teacher.module


def floats(module):
    return {name: tensor for name, tensor in module.state_dict().items() if tensor.is_floating_point()}


def test_a_teacher_kept_by_hand_is_the_loop_by_hand_bit_for_bit(make_learner, same):
    student = make_learner(new_module(), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9))
    teacher = AveragedModel(student.module, multi_avg_fn=get_ema_multi_avg_fn(MOMENTUM), use_buffers=True)
    teacher.update_parameters(student.module)
    teacher.requires_grad_(False)
    for views in batches():
        teacher.eval()
        student.update(lambda views: contrast(student, teacher, views), views, decomposable=False)
        teacher.update_parameters(student.module)
    expected, of_teacher = by_hand()
    assert same(floats(expected), floats(student.module))
    assert same(floats(of_teacher), floats(teacher.module))


def test_the_learners_own_average_is_that_teacher_bit_for_bit(make_learner, same):
    """The teacher is the learner's moving average, called through a copy of the module that never trains."""
    student = make_learner(
        new_module(),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        ema=ts.EMA(decay=MOMENTUM, warmup=False, buffers=True),
    )
    teacher = copy.deepcopy(student.module).eval().requires_grad_(False)
    for views in batches():
        with student.averaged() as averaged:
            teacher.load_state_dict(averaged.state_dict())
        student.update(lambda views: contrast(student, teacher, views), views, decomposable=False)
    expected, of_teacher = by_hand()
    assert same(floats(expected), floats(student.module))
    with student.averaged() as averaged:
        assert same(floats(of_teacher), floats(averaged))


@pytest.mark.parametrize("options", [{"micro_batch": 4}, {"micro_batch": "auto"}])
def test_it_is_never_split(make_learner, options):
    student = make_learner(new_module())
    with pytest.raises(ts.OptionError, match="not a mean of its examples' losses"):
        student.update(
            lambda views: contrast(student, student, views), next(batches()), decomposable=False, **options
        )
