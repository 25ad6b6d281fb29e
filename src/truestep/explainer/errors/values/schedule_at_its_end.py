# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Explainer


class ScheduleAtItsEnd(Explainer):
    """OneCycleLR is stepped more often than it was made for.

    Means: it plans every step in advance and knows no rate beyond the last.

    Raises:
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=1)
        for _ in range(2):
            optimizer.step()
            schedule.step()

    Works:
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=3)
        for _ in range(2):
            optimizer.step()
            schedule.step()

    Fix: total_steps=epochs * len(loader) for a step a batch; with accumulation divide by it; when resuming restore the
    schedule's state, and count the epochs of both runs.

    Cases:
        otherwise: it was made for {total} steps, and this is step {step}.
    """

    messages = (r"Tried to step (?P<step>\d+) times\. The specified number of total steps is (?P<total>\d+)",)
