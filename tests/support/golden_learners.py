# SPDX-License-Identifier: Apache-2.0
"""A run of three learners that was left in its middle by 0.1.0, where they counted their updates together.

`tests/run/golden/learners` is its directory.
"""

import os

import torch
from torch import nn
from torch.nn.functional import mse_loss

import truestep as ts


def train(directory, *, leave_at=None):
    """Train for 12 steps, with one or two updates a step of each learner; return the run and its learners by name."""
    torch.manual_seed(0)
    saving = ts.Saving(every_steps=5, every_seconds=None, at_epoch_end=False, keep_last=1, background=False)
    run = ts.Run(directory, seed=3, device="cpu", saving=saving, progress=False, doctor=False)
    learners = [
        run.learner(
            nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.3), nn.Linear(4, 1)),
            lambda p: torch.optim.SGD(p, lr=0.05),
            name=name,
        )
        for name in "abc"
    ]
    a, b, c = learners
    inputs = torch.randn(12, 3, generator=torch.Generator().manual_seed(1))
    data = run.data((inputs, inputs.sum(1, keepdim=True)), batch_size=4, shuffle=True)

    def loss_of(*nets):
        def loss(batch):
            noise = 0.1 * ts.randn(len(batch[0]), 1)
            made = sum(net(batch[0]) for net in nets)
            return mse_loss(made + noise, batch[1], reduction="none").mean(1)

        return loss

    for _ in run.epochs(4):
        for batch in run.batches(data):
            b.update(loss_of(b), batch)
            a.update(loss_of(a), batch)
            a.update(loss_of(a), batch, micro_batch=3)
            with c.accumulating() as update:
                update.backward(loss_of(c)(batch))
            b.update(loss_of(b), batch)
            ts.update([b, c], loss_of(b, c), batch)
            if run.step == leave_at:
                os._exit(0)
    return run, {learner.name: learner for learner in learners}
