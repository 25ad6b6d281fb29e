# SPDX-License-Identifier: Apache-2.0
"""What a schedule counts: updates or epochs; and after how many it is over."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from torch.optim import Optimizer, lr_scheduler
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from truestep.core.errors import OptionError

Unit = Literal["update", "epoch"]


@dataclass(frozen=True)
class Plateau:
    """A schedule that lowers the learning rate when a logged metric stops improving."""

    scheduler: ReduceLROnPlateau
    metric: str


ScheduleFactory = Callable[[Optimizer], LRScheduler | Plateau]

# torch's documentation steps these once an epoch, much code of today once an update: the same numbers mean different things.
# The others say what they count (OneCycleLR, CyclicLR), or are functions that were written for it (LambdaLR).
AMBIGUOUS = (
    *(lr_scheduler.StepLR, lr_scheduler.MultiStepLR, lr_scheduler.ConstantLR, lr_scheduler.LinearLR),
    *(lr_scheduler.ExponentialLR, lr_scheduler.PolynomialLR, lr_scheduler.CosineAnnealingLR),
    lr_scheduler.CosineAnnealingWarmRestarts,
)


@dataclass(frozen=True)
class Counting:
    """A schedule factory that says what its schedule counts."""

    factory: ScheduleFactory
    unit: Unit

    def __call__(self, optimizer: Optimizer) -> LRScheduler | Plateau:
        """Make the schedule."""
        return self.factory(optimizer)


def per_epoch(schedule: ScheduleFactory) -> Counting:
    """Say that a schedule counts epochs: it steps at each end of a `run.epochs` loop's body, once the learner has been updated.

    schedule=ts.per_epoch(lambda o: torch.optim.lr_scheduler.StepLR(o, step_size=30))
    """
    return Counting(schedule, "epoch")


def per_update(schedule: ScheduleFactory) -> Counting:
    """Say that a schedule of torch's that is often stepped once an epoch counts updates here."""
    return Counting(schedule, "update")


def schedule_unit(factory: ScheduleFactory, schedule: LRScheduler, learner: str) -> Unit:
    """Return what `schedule` counts; an OptionError asks where that is not said and either could be meant."""
    if isinstance(factory, Counting):
        return factory.unit
    if ambiguous := _schedule_of_unclear_unit(schedule):
        name = type(ambiguous).__name__
        raise OptionError(
            f"The schedule of {learner!r} is a {name}{_length_text(ambiguous)}: torch's documentation steps it once an epoch, here "
            f"a schedule steps with each update, and nothing says which was meant. For epochs write "
            f"schedule=ts.per_epoch(lambda o: {name}(o, ...)), for updates schedule=ts.per_update(lambda o: {name}(o, ...))."
        )
    return "update"


def _schedule_of_unclear_unit(schedule: LRScheduler) -> LRScheduler | None:
    inner: list[LRScheduler] = getattr(schedule, "_schedulers", [])  # of SequentialLR and ChainedScheduler
    if inner:
        return next((found for each in inner if (found := _schedule_of_unclear_unit(each))), None)
    return schedule if isinstance(schedule, AMBIGUOUS) else None


def _length_text(schedule: LRScheduler) -> str:
    """Return the lengths it was made with, for a message."""
    names = ("step_size", "milestones", "total_iters", "gamma", "T_max", "T_0")
    found = {name: getattr(schedule, name) for name in names if hasattr(schedule, name)}
    if "milestones" in found:
        found["milestones"] = sorted(found["milestones"].elements())
    return f" ({', '.join(f'{name}={value}' for name, value in found.items())})" if found else ""


def schedule_ends_after(schedule: Any) -> int | None:
    """Return after how many steps nothing is left of a schedule, None for one without an end or of an unknown kind."""
    if isinstance(schedule, lr_scheduler.LambdaLR):
        ends = [_function_ends_after(function) for function in schedule.lr_lambdas]
        return max(ends) if all(ends) else None
    if isinstance(schedule, lr_scheduler.SequentialLR):
        last = schedule_ends_after(schedule._schedulers[-1])
        return None if last is None else schedule._milestones[-1] + last
    if isinstance(schedule, lr_scheduler.LinearLR):  # a rising one is a warm-up
        return schedule.total_iters if schedule.end_factor < schedule.start_factor else None
    if isinstance(schedule, lr_scheduler.MultiStepLR):
        return max(schedule.milestones, default=None)
    for kind, name in _LENGTHS.items():
        if isinstance(schedule, kind):
            return int(getattr(schedule, name))
    return None


def schedule_climbs_again(schedule: Any) -> bool:
    """Return whether a schedule that is over gives a higher rate than it ended with, as a cosine does behind its end."""
    if not isinstance(schedule, lr_scheduler.LambdaLR):
        return False
    end = schedule_ends_after(schedule)
    return end is not None and any(
        float(now) > float(rate * function(end)) * (1 + 1e-9)
        for now, rate, function in zip(
            schedule._last_lr, schedule.base_lrs, schedule.lr_lambdas, strict=False
        )
    )


def _function_ends_after(function: Any) -> int:
    """Return the steps that a function of the step was made for, 0 where it holds none: ours say it, transformers' keep it.

    A function that somebody wrote in the form of theirs has it in its closure.
    """
    code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None)
    held = dict(zip(code.co_freevars, cells, strict=True)) if code and cells else {}
    kept = getattr(function, "keywords", {})  # a partial's
    try:
        end = getattr(function, "total_steps", 0) or kept.get(_THEIRS) or held[_THEIRS].cell_contents
    except (KeyError, ValueError):  # no such name, or one without a value yet
        return 0
    return end if isinstance(end, int) else 0


_THEIRS = "num_training_steps"
_LENGTHS: dict[type[LRScheduler], str] = {
    lr_scheduler.OneCycleLR: "total_steps",
    lr_scheduler.CosineAnnealingLR: "T_max",
    lr_scheduler.PolynomialLR: "total_iters",
}
