# SPDX-License-Identifier: Apache-2.0
"""The usual shapes of a learning rate, as functions of the updates applied so far.

Each returns a torch scheduler (`LambdaLR`), counts updates (not epochs, not batches), and holds its last value when
training goes on past `total_steps`. The optimizer's own learning rate is the peak.
"""

import math
from collections.abc import Callable

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from truestep.core.errors import OptionError, check_number
from truestep.core.text_formatting import a_type


def warmup_cosine(
    optimizer: Optimizer, *, warmup_steps: int, total_steps: int, final: float = 0.0
) -> LambdaLR:
    """Rise linearly for `warmup_steps`, then fall along half a cosine to `final` times the peak (Loshchilov & Hutter, 2017)."""
    return _warmup_schedule(
        "warmup_cosine",
        optimizer,
        warmup_steps,
        total_steps,
        lambda part: final + (1 - final) * (1 + math.cos(math.pi * part)) / 2,
    )


def warmup_linear(
    optimizer: Optimizer, *, warmup_steps: int, total_steps: int, final: float = 0.0
) -> LambdaLR:
    """Rise linearly for `warmup_steps`, then fall linearly to `final` times the peak."""
    return _warmup_schedule(
        "warmup_linear", optimizer, warmup_steps, total_steps, lambda part: 1 - (1 - final) * part
    )


def warmup_constant(optimizer: Optimizer, *, warmup_steps: int) -> LambdaLR:
    """Rise linearly for `warmup_steps`, then stay at the peak."""
    _check_schedule_arguments("ts.warmup_constant", optimizer, warmup_steps, None)
    return LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / max(warmup_steps, 1)))


def warmup_inverse_sqrt(optimizer: Optimizer, *, warmup_steps: int) -> LambdaLR:
    """Rise linearly for `warmup_steps`, then fall as 1/√step from the peak (Vaswani et al., 2017, section 5.3)."""
    _check_schedule_arguments("ts.warmup_inverse_sqrt", optimizer, warmup_steps, None)
    if warmup_steps < 1:
        raise OptionError(
            f"warmup_steps={warmup_steps}: an inverse square root needs at least one step of warm-up to start from."
        )
    return LambdaLR(
        optimizer, lambda step: min((step + 1) / warmup_steps, math.sqrt(warmup_steps / (step + 1)))
    )


def one_cycle(
    optimizer: Optimizer, *, total_steps: int, warmup: float = 0.3, start: float = 0.04, final: float = 4e-6
) -> LambdaLR:
    """Rise from `start` to the peak along a cosine in a `warmup` part of all steps, then fall to `final` (Smith & Topin, 2019).

    The shape of torch's `OneCycleLR` with its defaults; past its end it holds instead of raising. Momentum is left alone.
    """
    _check_schedule_arguments("ts.one_cycle", optimizer, 0, total_steps)
    if not 0 < warmup < 1:
        raise OptionError(
            f"warmup={warmup} is the part of all steps in which the rate rises; it lies between 0 and 1."
        )
    # The defaults are torch's: start = 1 / div_factor = 1/25, final = start / final_div_factor = start / 10,000.
    peak, end = max(warmup * total_steps - 1, 1e-9), total_steps - 1

    def shape(step: int) -> float:
        if step <= peak:
            return _cosine_between(start, 1.0, step / peak)
        return _cosine_between(1.0, final, min((step - peak) / max(end - peak, 1e-9), 1.0))

    return _schedule_with_end(optimizer, shape, total_steps)


def _cosine_between(first: float, last: float, part: float) -> float:
    return last + (first - last) * (1 + math.cos(math.pi * part)) / 2


def _warmup_schedule(
    name: str, optimizer: Optimizer, warmup_steps: int, total_steps: int, fall: Callable[[float], float]
) -> LambdaLR:
    _check_schedule_arguments(f"ts.{name}", optimizer, warmup_steps, total_steps)

    def shape(step: int) -> float:
        if step < warmup_steps:
            return (step + 1) / warmup_steps
        return fall(min((step - warmup_steps) / max(total_steps - warmup_steps, 1), 1.0))

    return _schedule_with_end(optimizer, shape, total_steps)


def _schedule_with_end(optimizer: Optimizer, shape: Callable[[int], float], total_steps: int) -> LambdaLR:
    """Return the schedule; its function knows where it ends, so that a run can say when that is too early."""
    shape.total_steps = total_steps  # type: ignore[attr-defined]
    return LambdaLR(optimizer, shape)


def check_schedules_optimizer(owner: str, optimizer: object) -> None:
    """Raise an OptionError where something else stands in the place of the optimizer whose rates a schedule sets."""
    if not hasattr(optimizer, "param_groups"):
        raise OptionError(
            f"{owner} was given {a_type(optimizer)} in the place of the optimizer whose learning rate it sets. A learner makes its "
            f"optimizer later, and is given a function of it: schedule=lambda optimizer: {owner}(optimizer, ...). In a loop of "
            f"your own give the optimizer itself: {owner}(optimizer, ...)."
        )


def _check_schedule_arguments(
    owner: str, optimizer: object, warmup_steps: int, total_steps: int | None
) -> None:
    check_schedules_optimizer(owner, optimizer)
    if isinstance(warmup_steps, float) and 0 < warmup_steps < 1:
        raise OptionError(
            f"{owner}(warmup_steps={warmup_steps}) was given a float where a whole number is asked for, as a share of all steps is "
            f"given elsewhere. It counts updates: {owner}(warmup_steps=round({warmup_steps} * total_steps))."
        )
    for name, steps in (("warmup_steps", warmup_steps), ("total_steps", total_steps)):
        if steps is not None:
            check_number(owner, name, steps, example=100)
    if warmup_steps < 0 or (total_steps is not None and total_steps < 1):
        raise OptionError(
            f"warmup_steps={warmup_steps}, total_steps={total_steps}: steps are counted from 0, and there is at least one."
        )
    if total_steps is not None and warmup_steps > total_steps:
        raise OptionError(
            f"warmup_steps={warmup_steps} is more than total_steps={total_steps}: the rate would never reach its peak. total_steps "
            "counts updates (epochs times batches an epoch), not epochs."
        )
