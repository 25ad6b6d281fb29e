# SPDX-License-Identifier: Apache-2.0
"""Stepping a schedule for as long as a training would, and writing down what each update is made with."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from truestep.core.errors import OptionError
from truestep.core.schedule_units import Counting, Plateau, ScheduleFactory, schedule_ends_after
from truestep.core.text_formatting import a_type, plural

DEFAULTS = {"lr": 1.0, "momentum": 0.9, "weight_decay": 0.0}
WRITTEN_BY_SCHEDULES = ("initial_lr", "max_lr", "min_lr", "max_momentum", "base_momentum")


class DummyOptimizer(Optimizer):
    """The groups of an optimizer with one number each for parameters; a step changes nothing."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Do nothing: schedules ask only whether it was called."""


def dummy_optimizer_like(like: "float | Optimizer | None") -> DummyOptimizer:
    """Return a dummy with the groups of `like`: an optimizer, the learning rate of one, or none for a rate of 1."""
    if isinstance(like, Optimizer):
        groups = [
            {"params": [_zero_parameter()], **_initial_group_settings(group)} for group in like.param_groups
        ]
        return DummyOptimizer(groups, dict(like.defaults))
    if like is not None and (isinstance(like, bool) or not isinstance(like, int | float)):
        raise OptionError(
            f"optimizer={like!r} is {a_type(like)}. Give the optimizer that is scheduled (it is copied, not used), or its "
            "learning rate: optimizer=3e-4."
        )
    return DummyOptimizer([_zero_parameter()], DEFAULTS | ({} if like is None else {"lr": float(like)}))


def _zero_parameter() -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.zeros(1, device="cpu"))


def _initial_group_settings(group: dict[str, Any]) -> dict[str, Any]:
    """Return a group's settings as they were before a schedule of its own moved them."""
    kept = {
        name: value.item() if isinstance(value, torch.Tensor) else value
        for name, value in group.items()
        if name != "params" and name not in WRITTEN_BY_SCHEDULES
    }
    if "initial_lr" in group:
        kept["lr"] = group["initial_lr"]
    return kept


Reading = Callable[[dict[str, Any]], float | None]


QUANTITIES: dict[str, Reading] = {
    "learning rate": lambda group: group["lr"],
    "momentum": lambda group: group["betas"][0] if group.get("betas") else group.get("momentum"),
    "weight decay": lambda group: group.get("weight_decay"),
}


Metric = Callable[[int], float]


@dataclass(frozen=True, kw_only=True)
class ScheduledTraining:
    """How long a schedule is stepped, and what it is told."""

    num_steps: int
    steps_per_epoch: int | None
    metric: Metric | None


@dataclass(frozen=True, kw_only=True)
class SteppedSchedule:
    """What one schedule did: the values of each group's settings at each update."""

    settings: list[dict[str, list[float]]]
    group_names: list[str]
    ends_after: int | None  # updates, None where the schedule does not say
    stopped: str | None  # what the schedule raised when it was stepped beyond its end


def step_through(
    factory: ScheduleFactory, training: ScheduledTraining, like: "float | Optimizer | None"
) -> SteppedSchedule:
    """Make the schedule of a dummy optimizer and step it; nothing of the caller's moves."""
    schedule = _make_schedule(factory, dummy_optimizer_like(like))
    return _step_and_record(schedule, schedule.optimizer, training, unit=getattr(factory, "unit", "update"))


def _make_schedule(factory: Any, optimizer: Optimizer) -> Any:
    if isinstance(factory, LRScheduler | ReduceLROnPlateau):
        raise OptionError(
            f"This {type(factory).__name__} belongs to an optimizer already, and plotting it would use it up. Give a function that "
            f"makes one: lambda optimizer: {type(factory).__name__}(optimizer, ...)."
        )
    if not callable(factory):
        raise OptionError(
            f"{factory!r} is no function that makes a schedule. Write one such as lambda optimizer: ts.warmup_cosine(optimizer, "
            "warmup_steps=100, total_steps=2000)."
        )
    made = factory(optimizer)
    inner = made.scheduler if isinstance(made, Plateau) else made
    if not isinstance(inner, LRScheduler | ReduceLROnPlateau):
        raise OptionError(f"The function returned {a_type(made)}, no schedule: return torch's scheduler.")
    if inner.optimizer is not optimizer and not getattr(factory, "brings_its_own", False):
        raise OptionError(
            f"The function made {a_type(inner)} of another optimizer than the one it was given: plotting it would use up "
            "that one's schedule. Use the argument: lambda optimizer: Scheduler(optimizer, ...)."
        )
    return inner


def _step_and_record(
    schedule: Any, optimizer: Optimizer, training: ScheduledTraining, unit: str
) -> SteppedSchedule:
    """Step a schedule that may be used up."""
    every = _updates_per_schedule_step(schedule, training, unit)
    settings = [{name: list[float]() for name in QUANTITIES} for _ in optimizer.param_groups]
    stopped = None
    for step in range(1, training.num_steps + 1):
        _append_current_settings(optimizer, settings)
        # torch warns of a schedule that is stepped before its optimizer was.
        optimizer.step()
        # What a step behind the last update would set, no update is made with; and a schedule may refuse it.
        if step % every or step == training.num_steps:
            continue
        try:
            _step_schedule(schedule, training.metric, step)
        except Exception as error:  # noqa: BLE001 - a user's function may raise anything; the plot shows where
            stopped = f"{type(error).__name__} after {plural(step, 'update')}: {error}"
            break
    length = schedule_ends_after(schedule)
    names = [str(group.get("name", number)) for number, group in enumerate(optimizer.param_groups)]
    end = None if length is None else length * every
    return SteppedSchedule(settings=settings, group_names=names, ends_after=end, stopped=stopped)


def factory_taking_optimizer(factory: Any) -> Any:
    """Return a factory that may be called with an optimizer, also of a function that makes one of its own."""
    try:
        inspect.signature(factory).bind(None)
    except TypeError:
        try:
            inspect.signature(factory).bind()
        except TypeError:
            raise OptionError(
                f"{schedule_name(factory)} can be called neither with an optimizer alone nor without arguments. Write "
                "def make_schedule(optimizer): return ts.warmup_cosine(optimizer, warmup_steps=100, total_steps=2000)."
            ) from None

        def call_without_optimizer(_: Optimizer) -> Any:
            return factory()

        call_without_optimizer.brings_its_own = True  # type: ignore[attr-defined]
        return call_without_optimizer
    except ValueError:  # no signature to read: the call will tell
        pass
    return factory


def _updates_per_schedule_step(schedule: Any, training: ScheduledTraining, unit: str) -> int:
    """Return after how many updates the schedule steps."""
    if isinstance(schedule, ReduceLROnPlateau):
        if training.metric is None:
            raise OptionError(
                "ReduceLROnPlateau waits for a metric, and a plot has none. Say which values it would see: "
                "metric=lambda step: 1 / step."
            )
        return training.steps_per_epoch or 1
    if unit == "update":
        return 1
    if training.steps_per_epoch is None:
        raise OptionError(
            "This schedule counts epochs, and how many updates an epoch has is not said: steps_per_epoch=500 "
            "(--steps-per-epoch 500)."
        )
    return training.steps_per_epoch


def _step_schedule(schedule: Any, metric: Metric | None, step: int) -> None:
    if isinstance(schedule, ReduceLROnPlateau):
        assert metric is not None
        schedule.step(float(metric(step)))
    else:
        schedule.step()


def _append_current_settings(optimizer: Optimizer, settings: list[dict[str, list[float]]]) -> None:
    for group, columns in zip(optimizer.param_groups, settings, strict=True):
        for name, read in QUANTITIES.items():
            value = read(group)
            if value is not None:
                columns[name].append(float(value.item() if isinstance(value, torch.Tensor) else value))


def schedule_name(factory: Any) -> str:
    """Return what a schedule is called in a plot of several."""
    inner = factory.factory if isinstance(factory, Counting) else factory
    name = getattr(inner, "__name__", type(inner).__name__)
    return "schedule" if name == "<lambda>" else name
