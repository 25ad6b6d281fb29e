# SPDX-License-Identifier: Apache-2.0
"""A group that the loop adds to an optimizer is scheduled as in a plain loop, beside each schedule that goes on with it there."""

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    ExponentialLR,
    LinearLR,
    MultiStepLR,
    PolynomialLR,
    StepLR,
)

import truestep as ts

SCHEDULES = {
    "step": lambda o: StepLR(o, 2, 0.5),
    "cosine": lambda o: CosineAnnealingLR(o, 10),
    "exponential": lambda o: ExponentialLR(o, 0.9),
    "linear": LinearLR,
    "polynomial": lambda o: PolynomialLR(o, 9),
    "several steps": lambda o: MultiStepLR(o, [2]),
}


def by_hand(made, rows, *, each_epoch):
    """Return the rates of a plain loop that adds the head behind its first epoch."""
    body, head = nn.Linear(4, 3), nn.Linear(3, 1)
    optimizer = torch.optim.SGD(body.parameters(), lr=0.1)
    schedule = made(optimizer)
    for epoch in range(2):
        for part in rows.split(4):
            optimizer.zero_grad()
            head(body(part)).square().mean().backward()
            optimizer.step()
            if not each_epoch:
                schedule.step()
        if epoch == 0:
            optimizer.add_param_group({"params": list(head.parameters()), "lr": 0.05})
        if each_epoch:
            schedule.step()
    return [group["lr"] for group in optimizer.param_groups]


@pytest.mark.parametrize("each_epoch", [False, True])
@pytest.mark.parametrize("name", SCHEDULES)
def test_a_late_group_has_the_rates_that_it_has_in_a_plain_loop(name, each_epoch, tmp_path):
    made, rows = SCHEDULES[name], torch.randn(12, 4)
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 1))
    model[1].requires_grad_(False)
    with ts.Run(tmp_path / "run", seed=0, progress=False, quiet=True) as run:
        net = run.learner(
            model,
            lambda p: torch.optim.SGD(list(p)[:2], lr=0.1),
            schedule=(ts.per_epoch if each_epoch else ts.per_update)(made),
        )
        data = run.data(rows, batch_size=4)
        for epoch in run.epochs(2):
            for batch in run.batches(data):
                net.update(lambda part: net(part).square().squeeze(1), batch)
            if epoch == 0:
                head = list(model[1].requires_grad_(True).parameters())
                net.optimizers[0].add_param_group({"params": head, "lr": 0.05})
    assert [group["lr"] for group in net.optimizers[0].param_groups] == by_hand(
        made, rows, each_epoch=each_epoch
    )
