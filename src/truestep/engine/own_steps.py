# SPDX-License-Identifier: Apache-2.0
"""Which steps of optimizers and schedules are the engine's own: whoever looks at steps can tell them from a user's."""

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.optimizer import _global_optimizer_pre_hooks

LOOKING = -2  # the number of a hook that only looks: torch numbers its own from 0
UNDER_WAY: set[Optimizer | LRScheduler] = set()
"""What steps at this moment and is not to be looked at."""


def step_optimizer(optimizer: Optimizer, closure: object = None) -> None:
    """Make an optimizer's own step as the engine's."""
    UNDER_WAY.add(optimizer)
    try:
        optimizer.step() if closure is None else optimizer.step(closure)  # type: ignore[call-overload]
    finally:
        UNDER_WAY.discard(optimizer)


def step_schedule(schedule: LRScheduler, *metric: float) -> None:
    """Move a schedule on as the engine's."""
    UNDER_WAY.add(schedule)
    try:
        schedule.step(*metric)  # type: ignore[arg-type]
    finally:
        UNDER_WAY.discard(schedule)


def look_at_steps(hook: object) -> None:
    """Have torch call `hook(optimizer, args, kwargs)` before each step of any optimizer; None for no more."""
    if hook is None:
        _global_optimizer_pre_hooks.pop(LOOKING, None)
    else:
        _global_optimizer_pre_hooks[LOOKING] = hook  # type: ignore[assignment]
