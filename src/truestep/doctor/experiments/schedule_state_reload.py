# SPDX-License-Identifier: Apache-2.0
"""A schedule that is given its own state back, as behind a restart: what is another one then, in a sealed child."""

import copy
import gc
import inspect
import io
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from truestep.core.user_frames import is_library_file
from truestep.doctor.experiments.budget import ExperimentBudget
from truestep.doctor.experiments.skip_reasons import ExperimentNotTriedError, RelationNotApplicableError
from truestep.doctor.finding import Place
from truestep.doctor.forks.fork import run_in_sealed_child

MOST_STEPS = 61  # of a schedule, before and behind its state is given back; a prime, so that no usual period divides it
_NAMED = ("sched", "lr", "rate", "warm", "anneal", "decay", "cosine", "cyclic", "plateau", "noam")
_MOST_ATTRIBUTES = 100  # of an object, and schedules of another one
Options = list[dict[str, Any]]  # of an optimizer's groups, without their parameters


@dataclass(frozen=True)
class ScheduleStateChange:
    """What is another one behind a schedule's own state."""

    schedule: str  # its class
    what: str
    place: str  # of the method that gives it back, or where the schedule was made; empty where neither is the user's
    is_at_once: bool  # whether it shows before the schedule steps


@dataclass
class StateExperiment:
    """A child that gives the schedules of some optimizers their own states back."""

    optimizers: Sequence[Optimizer]
    made: Mapping[int, Place]  # where schedules were made, by identity
    place: Place
    budget: ExperimentBudget

    def lost(self) -> list[ScheduleStateChange]:
        """Return what is another one then.

        Raises:
            ExperimentNotTriedError: no schedule could be asked.
            RelationNotApplicableError: there is none that has a state.
        """
        size = sum(
            each.nbytes for one in self.optimizers for group in one.param_groups for each in group["params"]
        )
        seconds = self.budget.seconds_left()
        with self.budget.child():
            told = run_in_sealed_child(self._compare_in_child, seconds=seconds, num_bytes=4 * size)
        if told.failure is not None:
            raise ExperimentNotTriedError(told.failure)
        if told.value["count"] == 0:
            raise RelationNotApplicableError("no schedule with a state of its own holds an optimizer")
        if told.value["asked"] == 0:
            raise ExperimentNotTriedError(f"a schedule's state could not be given back: {told.value['why']}")
        return [ScheduleStateChange(**each) for each in told.value["lost"]]

    def _compare_in_child(self) -> dict[str, Any]:
        asked, why, found = 0, "", list[dict[str, Any]]()
        schedules = schedules_of(self.optimizers)
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            for each in schedules:
                try:
                    found += [vars(lost) for lost in self._changes_by_own_state(each)]
                    asked += 1
                except Exception as error:  # noqa: BLE001 - the script's code may raise anything
                    why = f"{type(error).__name__}: {error}"
                if found:
                    break  # what wraps it loses the same
        return {"count": len(schedules), "asked": asked, "why": why, "lost": found}

    def _changes_by_own_state(self, schedule: Any) -> Iterator[ScheduleStateChange]:
        name, place = type(schedule).__name__, self._place_of_schedule(schedule)
        before, state = self._group_options(), _round_trip_state(schedule.state_dict())
        ahead = self._options_of_next_steps(schedule)
        self._restore_options(before)
        schedule.load_state_dict(_round_trip_state(state))
        after = _round_trip_state(schedule.state_dict())
        told = _first_difference(state, after) or _first_difference(
            before, self._group_options(), "the groups' options"
        )
        if told:
            yield ScheduleStateChange(name, told, place, True)
        elif (
            ahead is not None
            and (number := _first_differing_index(ahead, self._options_of_next_steps(schedule) or []))
            is not None
        ):
            yield ScheduleStateChange(name, f"its rate is another one {number + 1} steps later", place, False)
        self._restore_options(before)
        schedule.load_state_dict(state)
        self._restore_options(before)

    def _place_of_schedule(self, schedule: Any) -> str:
        code = getattr(type(schedule).load_state_dict, "__code__", None)
        if code is not None and not is_library_file(code.co_filename):
            return str(Place(code.co_filename, code.co_firstlineno))
        made = self.made.get(id(schedule))
        return "" if made is None else str(made)

    def _group_options(self) -> list[Options]:
        return [
            [
                {key: copy.deepcopy(value) for key, value in group.items() if key != "params"}
                for group in one.param_groups
            ]
            for one in self.optimizers
        ]

    def _restore_options(self, options: list[Options]) -> None:
        """Give groups the options that they had, in place: who holds a group still holds it."""
        for optimizer, kept in zip(self.optimizers, options, strict=True):
            for group, each in zip(optimizer.param_groups, kept, strict=True):
                group.update(copy.deepcopy(each))

    def _options_of_next_steps(self, schedule: Any) -> list[Any] | None:
        """Return the options of all groups step by step; None where a schedule can't be stepped alone."""
        if (step := _step_without_arguments(schedule)) is None:
            return None
        found: list[Any] = []
        for _ in range(MOST_STEPS):
            try:
                step()
            except Exception as error:  # noqa: BLE001 - a schedule may end
                return [*found, type(error).__name__]
            found.append(_to_comparable(self._group_options()))
        return found


def schedules_of(optimizers: Sequence[Optimizer]) -> list[Any]:
    """Return what there is in this process that sets options of these, as it seems, and has a state; inner ones first."""
    found: list[Any] = []
    newest: list[Any] = list(optimizers)
    for _ in range(3):  # schedules of schedules
        known = {id(each) for each in (*optimizers, *found)}
        newest = [
            each for each in _objects_holding(newest) if id(each) not in known and _may_be_schedule(each)
        ]
        found += newest
    return found


def _objects_holding(held: Sequence[Any]) -> list[Any]:
    """Return the objects that have one of these as an attribute, or in a list, tuple or dict that is one."""
    around, holders = list(held), list[Any]()
    for _ in range(3):  # of an attribute in a list: the list, the attributes, the object
        refers = gc.get_referrers(*around) if around else []
        around = [
            each for each in refers if type(each) in (list, tuple, dict) and _can_be_attribute_dict(each)
        ]
        holders += [each for each in refers if type(each) not in (list, tuple, dict)]
    return list({id(each): each for each in holders}.values())


def _can_be_attribute_dict(value: Any) -> bool:
    return len(value) <= _MOST_ATTRIBUTES and "__builtins__" not in value


def _may_be_schedule(value: Any) -> bool:
    kind = type(value)
    if not all(callable(getattr(kind, each, None)) for each in ("state_dict", "load_state_dict")):
        return False
    if issubclass(kind, (Optimizer, nn.Module)) or not hasattr(value, "__dict__"):
        return False
    if not any(each in base.__name__.lower() for base in kind.__mro__ for each in _NAMED):
        return False
    return not any(isinstance(each, nn.Module) for each in vars(value).values())


def _step_without_arguments(schedule: Any) -> Any:
    step = getattr(schedule, "step", None)
    if step is None or isinstance(schedule, ReduceLROnPlateau):
        return None if step is None else lambda: step(1.0)
    with suppress(TypeError, ValueError):
        inspect.signature(step).bind()
        return step
    return None


def _round_trip_state(state: Any) -> Any:
    """Return a state as a file gives it back."""
    file = io.BytesIO()
    try:
        torch.save(state, file)
    except Exception:  # noqa: BLE001 - it can't be written
        return copy.deepcopy(state)
    file.seek(0)
    return torch.load(file, weights_only=False)


def _to_comparable(value: Any) -> Any:
    """Return what two states are compared by; of what is unknown, its class."""
    if isinstance(value, (Tensor, np.ndarray, np.generic)):
        return _to_comparable(value.tolist())
    if isinstance(value, Mapping):
        return {str(key): _to_comparable(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_to_comparable(each) for each in value]
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value
    return value if isinstance(value, (int, str, type(None))) else type(value).__name__


def _first_difference(before: Any, after: Any, name: str = "") -> str:
    """Return the first entry of a state that is another one, with both values; nothing where all are the same."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        pairs = [
            (f"{name}[{key!r}]" if name else str(key), each, after.get(key)) for key, each in before.items()
        ]
        return next((told for key, one, other in pairs if (told := _first_difference(one, other, key))), "")
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = [(f"{name}[{place}]", *each) for place, each in enumerate(zip(before, after, strict=True))]
        return next((told for key, one, other in pairs if (told := _first_difference(one, other, key))), "")
    one, other = _to_comparable(before), _to_comparable(after)
    return (
        ""
        if one == other
        else f"{name or 'its state'} was {_shortened_repr(one)} and is {_shortened_repr(other)}"
    )


def _shortened_repr(value: Any) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _first_differing_index(before: list[Any], after: list[Any]) -> int | None:
    pairs = enumerate(zip(before, after, strict=False))
    return next((number for number, (one, other) in pairs if one != other), None)
