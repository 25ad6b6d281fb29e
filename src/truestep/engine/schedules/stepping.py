# SPDX-License-Identifier: Apache-2.0
"""Stepping a learner's schedules: once for each update that was applied, or when a metric is logged."""

import difflib
import inspect
import re
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from torch.optim import Optimizer, lr_scheduler
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, OneCycleLR, ReduceLROnPlateau

from truestep.core.argument_errors import check_keyword_options
from truestep.core.call_site import is_raised_in_library
from truestep.core.errors import OptionError, check_choice
from truestep.core.metric_direction import best_mode_of_metric
from truestep.core.schedule_units import AMBIGUOUS, Counting, Plateau, ScheduleFactory, schedule_unit
from truestep.core.text_formatting import a_type, keyword_text, with_article
from truestep.core.user_frames import warn_user
from truestep.engine.schedules.shapes import check_schedules_optimizer
from truestep.instrument.step_listeners import step_schedule

_OURS = {
    "cosine": "warmup_cosine",
    "linear": "warmup_linear",
    "constant": "warmup_constant",
    "inverse_sqrt": "warmup_inverse_sqrt",
    "one_cycle": "one_cycle",
    "plateau": "plateau",
}
_ARGUMENTS = {
    "warmup_constant": "warmup_steps=100",
    "warmup_inverse_sqrt": "warmup_steps=100",
    "one_cycle": "total_steps=2000",
    "plateau": 'metric="accuracy"',
}


def plateau(optimizer: Optimizer, *, metric: str, mode: str = "min", **options: Any) -> Plateau:
    """Lower the learning rate when `run.log(metric=...)` stops improving; `options` are torch's ReduceLROnPlateau's."""
    known = ["metric", *list(inspect.signature(ReduceLROnPlateau).parameters)[1:]]
    check_keyword_options("ts.plateau", options, known)
    check_choice("ts.plateau", "mode", mode, ("min", "max"))
    check_schedules_optimizer("ts.plateau", optimizer)
    if mode == "max" and best_mode_of_metric(metric) == "min":
        warn_user(
            f'ts.plateau(o, metric={metric!r}, mode="max") lowers the rate where {metric!r} does not rise, and of what is called '
            "so the lowest is best as a rule: each better value would count as a worse one. Write "
            f'ts.plateau(o, metric={metric!r}, mode="min").'
        )
    return Plateau(ReduceLROnPlateau(optimizer, mode=mode, **options), metric)  # type: ignore[arg-type]


class ManualRate(NamedTuple):
    """A learning rate that somebody has set beside a schedule, and what the schedule had set."""

    rate: float
    own: float
    schedule: str
    unit: str
    """After which the schedule sets it anew."""


class LearnerSchedules:
    """The schedules of one learner, one for each of its optimizers."""

    def __init__(
        self, factory: ScheduleFactory | None, optimizers: Sequence[Optimizer], learner: str
    ) -> None:
        self.per_update: list[LRScheduler] = []
        """Those that count applied updates."""
        self.per_epoch: list[LRScheduler] = []
        """Those that count epochs."""
        self._plateaus: list[Plateau] = []
        if factory is None:
            return
        check_schedule_factory(factory, learner)
        self._learner = learner
        for optimizer in optimizers:
            schedule = _make_schedule(factory, optimizer, learner)
            self._add_schedule(factory, schedule, learner)
            _refuse_other_optimizer(schedule, optimizer, learner)

    def _add_schedule(self, factory: ScheduleFactory, schedule: Any, learner: str) -> None:
        if isinstance(schedule, Plateau):
            if isinstance(factory, Counting):
                name = f"per_{factory.unit}"
                raise OptionError(
                    f"The schedule of {learner!r} waits for {schedule.metric!r} and counts neither updates nor epochs: leave "
                    f"ts.{name} out, schedule=lambda o: ts.plateau(o, metric={schedule.metric!r})."
                )
            self._plateaus.append(schedule)
        elif isinstance(schedule, ReduceLROnPlateau):
            metric = "accuracy" if schedule.mode == "max" else "val_loss"
            raise OptionError(
                f"The schedule of {learner!r} waits for a metric, but does not say which. Write schedule=lambda o: "
                f"ts.plateau(o, metric={metric!r}, mode={schedule.mode!r}) and log it with run.log({keyword_text(metric)})."
            )
        elif isinstance(schedule, Counting):
            raise OptionError(_unit_placement_message(schedule, learner))
        elif isinstance(schedule, dict) and "scheduler" in schedule:
            raise OptionError(_lightning_dict_message(schedule, learner))
        elif isinstance(schedule, LRScheduler):
            counts_epochs = schedule_unit(factory, schedule, learner) == "epoch"
            (self.per_epoch if counts_epochs else self.per_update).append(schedule)
        else:
            raise OptionError(
                f"The schedule of {learner!r} returned {type(schedule).__name__}; return a torch scheduler, for example "
                "lambda o: ts.warmup_cosine(o, warmup_steps=100, total_steps=2000); of a function of the step, lambda o: "
                "torch.optim.lr_scheduler.LambdaLR(o, function)."
            )

    def step_after_update(self) -> None:
        """Move those on that count updates."""
        for schedule in self.per_update:
            try:
                step_schedule(schedule)
            except ValueError as error:
                if isinstance(schedule, OneCycleLR) and "Tried to step" in str(error):
                    raise OptionError(_ended_one_cycle_message(schedule, self._learner)) from error
                raise

    def epoch_ended(self) -> None:
        """Move those on that count epochs, after a learner's updates."""
        for schedule in self.per_epoch:
            # torch warns where it saw no step in this process; a run that goes on at an epoch's end made them before.
            schedule.optimizer._opt_called = True  # type: ignore[attr-defined]
            step_schedule(schedule)

    def logged(self, metrics: dict[str, float]) -> None:
        """Let plateau schedules see what was logged."""
        for schedule in self._plateaus:
            if schedule.metric in metrics:
                step_schedule(schedule.scheduler, metrics[schedule.metric])

    def find_manual_rate(self) -> "ManualRate | None":
        """Return a rate that is not the one which its schedule has set, where the schedule computes each anew from the first."""
        units = dict.fromkeys(self.per_update, "update") | dict.fromkeys(self.per_epoch, "epoch")
        for schedule, unit in units.items():
            for group, own in zip(schedule.optimizer.param_groups, schedule._last_lr, strict=False):
                if isinstance(schedule, LambdaLR | OneCycleLR) and float(group["lr"]) != float(own):
                    return ManualRate(float(group["lr"]), float(own), type(schedule).__name__, unit)
        return None

    @property
    def awaited_metrics(self) -> list[str]:
        """The metrics that plateau schedules wait for and have never been given."""
        return [each.metric for each in self._plateaus if each.scheduler.last_epoch == 0]

    def state_dict(self) -> list[dict[str, Any]]:
        """Return the state of every schedule."""
        return [schedule.state_dict() for schedule in self._all_schedules]

    def load_state_dict(self, state: list[dict[str, Any]]) -> None:
        """Take over the state of every schedule."""
        for schedule, saved in zip(self._all_schedules, state, strict=True):
            schedule.load_state_dict(saved)

    def take_initial_rates(self) -> None:
        """Go on from the first rates that the optimizers now have."""
        for schedule in self._all_schedules:
            for each in [schedule, *getattr(schedule, "_schedulers", [])]:
                groups = each.optimizer.param_groups
                if hasattr(each, "base_lrs"):
                    # torch's schedulers keep copies of the first rates, and compute from these.
                    each.base_lrs = [group["initial_lr"] for group in groups]
                    each._last_lr = [group["lr"] for group in groups]

    @property
    def names(self) -> list[str]:
        """The classes of the schedules, and where they count epochs, that."""
        return [
            type(schedule).__name__ + (" per epoch" if schedule in self.per_epoch else "")
            for schedule in self._all_schedules
        ]

    def differences(self, state: list[dict[str, Any]]) -> list[str]:
        """Return where functions of the step give other rates than the ones that `state` was saved with."""
        found = []
        for schedule, saved in zip(self._all_schedules, state, strict=True):
            if type(schedule) is not LambdaLR or any(saved.get("lr_lambdas", [None])):
                continue  # others can't be asked for the rate at a step, or bring their own state
            rates = [
                float(rate * function(saved["last_epoch"]))
                for rate, function in zip(saved["base_lrs"], schedule.lr_lambdas, strict=False)
            ]
            if rates != [float(rate) for rate in saved["_last_lr"]]:
                found.append(
                    f"learning rate after {saved['last_epoch']} updates={rates}, before {saved['_last_lr']}"
                )
        return found

    @property
    def _all_schedules(self) -> list[Any]:
        return [*self.per_update, *self.per_epoch, *(schedule.scheduler for schedule in self._plateaus)]


def _make_schedule(factory: ScheduleFactory, optimizer: Optimizer, learner: str) -> Any:
    """Call the function that makes a schedule; one that computes with the optimizer as with a number is a function of the step."""
    try:
        return factory(optimizer)
    except TypeError as error:
        kind = type(optimizer).__name__
        if not re.search(rf"'{kind}'|\b{kind}$", str(error)) or is_raised_in_library(error):
            raise
        raise OptionError(
            f"schedule= of {learner!r} was called with the optimizer, {with_article(kind)}, and computes with it as with a number "
            f"({error}): it is a function of the step, as LambdaLR takes one, and makes no schedule. Write "
            "schedule=lambda o: torch.optim.lr_scheduler.LambdaLR(o, function), which multiplies the rate by function(step)."
        ) from error


def _lightning_dict_message(given: dict[str, Any], learner: str) -> str:
    """Say what to write for what `configure_optimizers` returns."""
    inner, interval = given["scheduler"], given.get("interval", "epoch")
    made = _transformers_maker_name(inner) or f"torch.optim.lr_scheduler.{type(inner).__name__}"
    if isinstance(inner, ReduceLROnPlateau):
        written = f"lambda o: ts.plateau(o, metric={given.get('monitor', 'valid_loss')!r})"
    else:
        wrapper = "ts.per_update" if interval == "step" else "ts.per_epoch"
        written = f"{wrapper}(lambda o: {made}(o, ...))"
    return (
        f"The schedule of {learner!r} returned a dict with {', '.join(map(repr, given))}, as configure_optimizers of Lightning "
        f"gives. Here a schedule stands alone, and what its interval ({interval!r}) says is said around it: schedule={written}."
    )


def _ended_one_cycle_message(schedule: OneCycleLR, learner: str) -> str:
    total = schedule.total_steps
    return (
        f"The OneCycleLR of {learner!r} has a rate for {total} updates (total_steps={total}), which were made, and torch gives "
        "none for one more. Write as many as the run has, total_steps=epochs * len(train) where each batch makes one update, or "
        f"schedule=lambda o: ts.one_cycle(o, total_steps={total}), which stays at its last rate."
    )


def check_schedule_factory(factory: Any, learner: str) -> None:
    """Raise an OptionError unless `factory` can be called with an optimizer alone."""
    if isinstance(factory, Counting):
        check_schedule_factory(factory.factory, learner)
        return
    if not callable(factory):
        shown = (
            f"{type(factory).__name__}(...)"
            if isinstance(factory, LRScheduler | Optimizer)
            else repr(factory)
        )
        raise OptionError(
            f"schedule={shown} of {learner!r} is no function that makes a schedule. The optimizer is made after the "
            f"module is on its device, and its schedule after it: write schedule={_wrong_factory_message(factory)}."
        )
    try:
        inspect.signature(factory).bind(None)
    except TypeError as error:
        name = getattr(factory, "__name__", type(factory).__name__)
        raise OptionError(
            f"schedule={name} of {learner!r} was called with the optimizer alone, and that is not enough: {error}. Write what "
            f"it needs: schedule={_schedule_expression(name)}."
        ) from None
    except ValueError:  # no signature to read: the call will tell
        return


def _refuse_other_optimizer(schedule: LRScheduler | Plateau, stepped: Optimizer, learner: str) -> None:
    """Raise an OptionError where a schedule moves the rates of an optimizer that no update of the learner steps."""
    made = schedule.scheduler if isinstance(schedule, Plateau) else schedule
    moved: Any = getattr(made, "optimizer", stepped)
    groups = {id(group) for group in stepped.param_groups}
    if moved is stepped or any(id(group) in groups for group in moved.param_groups):
        return
    if any(each is moved for each in vars(stepped).values()):  # the one that a wrapper holds
        return
    name = type(made).__name__
    written = (
        "lambda o: ts.warmup_cosine(o, ...)" if isinstance(made, LambdaLR) else f"lambda o: {name}(o, ...)"
    )
    if isinstance(schedule, Plateau):
        written = f"lambda o: ts.plateau(o, metric={schedule.metric!r})"
    elif isinstance(made, AMBIGUOUS):
        written = f"ts.per_epoch({written})"
    raise OptionError(
        f"The schedule of {learner!r}, {with_article(name)}, was made over another optimizer than the learner's: it would move the "
        f"rate of {a_type(moved)} ({_lr_text(moved)}) that no update steps, and the learner's {type(stepped).__name__} would keep "
        f"{_lr_text(stepped)}. Make it over the optimizer that the function is called with: schedule={written}."
    )


def _lr_text(optimizer: Optimizer) -> str:
    """Return the rate as it was written: a schedule has changed that of the groups."""
    return f"lr={float(optimizer.defaults.get('lr', optimizer.param_groups[0]['lr'])):g}"


def _unit_placement_message(schedule: Counting, learner: str) -> str:
    """Say where ts.per_epoch and ts.per_update stand."""
    made: Any = schedule.factory
    inner = f"{type(made).__name__}(o, ...)" if isinstance(made, LRScheduler) else "..."
    name = f"per_{schedule.unit}"
    return (
        f"The schedule of {learner!r} is a function that returned ts.{name}(...), and ts.{name} takes the function: it stands "
        f"around it, not inside. Write schedule=ts.{name}(lambda o: {inner})."
    )


def _wrong_factory_message(factory: Any) -> str:
    if isinstance(factory, LRScheduler):
        own = "plateau" if isinstance(factory, ReduceLROnPlateau) else type(factory).__name__
        return _schedule_expression(_transformers_maker_name(factory) or own)
    words = {**_OURS, **{name: name for name in _OURS.values()}}
    close = difflib.get_close_matches(str(factory).lower(), words, n=1, cutoff=0.5)
    return _schedule_expression(words[close[0]] if close else "warmup_cosine")


def _schedule_expression(name: str) -> str:
    """Return what makes a schedule of this name; those of torch's need to be told what they count."""
    if name in _OURS.values():
        return f"lambda o: ts.{name}(o, {_ARGUMENTS.get(name, 'warmup_steps=100, total_steps=2000')})"
    if not (kind := getattr(lr_scheduler, name, None)):
        return f"lambda o: {name}(o, ...)"
    torchs = f"lambda o: torch.optim.lr_scheduler.{name}(o, ...)"
    if issubclass(kind, AMBIGUOUS):
        return f"ts.per_epoch({torchs}) to step it after each epoch, ts.per_update(...) after each update"
    return f"{torchs}, which is stepped after each update; in ts.per_epoch(...) after each epoch"


def _transformers_maker_name(schedule: LRScheduler) -> str | None:
    """Return which function of transformers made a schedule, all of which count updates; None where another one did."""
    made = next(iter(getattr(schedule, "lr_lambdas", [])), None)
    made = getattr(made, "func", made)  # a partial's
    name = getattr(made, "__name__", "").removeprefix("_").removesuffix("_lr_lambda")
    home = getattr(made, "__module__", None)
    known = home == "transformers.optimization" and hasattr(sys.modules.get(home), name)
    return f"transformers.{name}" if known else None
