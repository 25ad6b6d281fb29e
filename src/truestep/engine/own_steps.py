# SPDX-License-Identifier: Apache-2.0
"""Which steps of optimizers and schedules are the engine's own: whoever looks at steps can tell them from a user's."""

from collections.abc import Callable
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.optimizer import _global_optimizer_pre_hooks

LOOKING = -2  # the number of a hook that only looks: torch numbers its own from 0
UNDER_WAY: set[Optimizer | LRScheduler] = set()
"""What steps at this moment and is not to be looked at."""


def make_own_step(
    stepped: Optimizer | LRScheduler, step: Callable[..., Any], *given: Any, **named: Any
) -> Any:
    """Call what steps an optimizer or a schedule, as the engine's own step."""
    UNDER_WAY.add(stepped)
    try:
        return step(*given, **named)
    finally:
        UNDER_WAY.discard(stepped)


def step_optimizer(optimizer: Optimizer, *closure: object) -> None:
    """Make an optimizer's own step as the engine's."""
    make_own_step(optimizer, optimizer.step, *closure)


def step_schedule(schedule: LRScheduler, *metric: float) -> None:
    """Move a schedule on as the engine's."""
    make_own_step(schedule, schedule.step, *metric)


def look_at_steps(hook: object) -> None:
    """Have torch call `hook(optimizer, args, kwargs)` before each step of any optimizer; None for no more."""
    if hook is None:
        _global_optimizer_pre_hooks.pop(LOOKING, None)
    else:
        _global_optimizer_pre_hooks[LOOKING] = hook  # type: ignore[assignment]
