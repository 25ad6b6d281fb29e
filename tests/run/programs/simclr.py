# SPDX-License-Identifier: Apache-2.0
"""A contrastive loss over the whole batch, with a teacher that follows the student, kept by hand in both."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

import truestep as ts

EPOCHS, BATCH, SIZE, WIDTH = 3, 8, 10, 6


def encoder():
    ts.seed_everything(4)
    return nn.Sequential(nn.Linear(SIZE, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, WIDTH))


def data():
    return tuple(torch.randn(2, 4 * BATCH, SIZE, generator=torch.Generator().manual_seed(1)).unbind())


def loss_of(student, teacher, first, second):
    with torch.no_grad():
        keys = F.normalize(teacher(second), dim=1)
    similar = F.normalize(student(first), dim=1) @ keys.T / 0.2
    return F.cross_entropy(similar, torch.arange(len(first)), reduction="none")


@torch.no_grad()
def follow(teacher, student):
    for mine, its in zip(teacher.parameters(), student.parameters(), strict=True):
        mine.lerp_(its, 0.1)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.3, momentum=0.9, fused=True)


def by_hand():
    student = encoder()
    teacher = copy.deepcopy(student).requires_grad_(False)
    optimizer = sgd(student.parameters())
    for _ in range(EPOCHS):
        for first, second in zip(*(each.split(BATCH) for each in data()), strict=True):
            optimizer.zero_grad()
            loss_of(student, teacher, first, second).mean().backward()
            optimizer.step()
            follow(teacher, student)
    return [*student.state_dict().values(), *teacher.state_dict().values()]


def with_a_run(directory, after_each_update):
    run = ts.Run(directory, seed=4, saving=ts.Saving(every_steps=1), progress=False)
    module = encoder()
    teacher = copy.deepcopy(module).requires_grad_(False)
    student = run.learner(module, sgd)
    run.track(teacher=teacher)
    train = run.data(data(), batch_size=BATCH)
    for _ in run.epochs(EPOCHS):
        for batch in run.batches(train):
            student.update(lambda pair: loss_of(student, teacher, *pair), batch, decomposable=False)
            after_each_update(run)
            follow(teacher, student)
    return [*student.state_dict().values(), *teacher.state_dict().values()]
