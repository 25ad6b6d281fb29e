# SPDX-License-Identifier: Apache-2.0
"""Uses of `ExactResume` under which a training would go on to other bits, or save nothing; each is refused."""

import gc
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from types import MethodType
from typing import Any, Never

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim.lr_scheduler import LRScheduler

from truestep.core.errors import OptionError
from truestep.core.wording import a_type

_WORDS = {
    "samples": "the data had {} samples, and has {}",
    "batch_size": "batch_size was {}, and is {}",
    "accumulation": "{} batches made a step, and {} do",
}


def habits_of(loader: Any, accumulation: int) -> dict[str, int | None]:
    """Return by which numbers a place in a pass is counted; None for those that the loader does not tell."""
    batch_size = getattr(loader, "batch_size", None) or getattr(
        getattr(loader, "batch_sampler", None), "batch_size", None
    )
    try:
        samples = len(loader.dataset)
    except (AttributeError, TypeError, NotImplementedError):
        samples = None
    return {
        "samples": samples,
        "batch_size": batch_size if isinstance(batch_size, int) else None,
        "accumulation": accumulation,
        "workers": getattr(loader, "num_workers", None),
    }


def refuse_other_habits(place: dict[str, Any], now: dict[str, int | None], directory: Path) -> None:
    """Raise an OptionError where a place was saved with other data: so many batches of its pass are not the same samples."""
    before = place.get("habits", {})
    told = [
        _WORDS[name].format(before[name], now[name])
        for name in _WORDS
        if None not in (before.get(name), now.get(name)) and before[name] != now[name]
    ]
    if told:
        raise OptionError(
            f"{directory} holds a checkpoint of another training: {'; '.join(told)}. The place in the epoch would be another "
            "one, and the bits too. Put it back as it was, or give ExactResume an empty directory."
        )
    workers = before.get("workers"), now.get("workers")
    if None not in workers and workers[0] != workers[1]:
        sys.stderr.write(
            f"truestep: num_workers was {workers[0]}, and is {workers[1]}: the order of the samples stays, and what the data draw "
            f"at random for a sample will not be what the training that was not killed draws. num_workers={workers[0]} keeps it.\n"
        )


def seed_as_begun(place: dict[str, Any] | None) -> int:
    """Return the seed that the training began with, and say so where the code has set another since: its streams go on."""
    now = torch.initial_seed()
    before = now if place is None else place.get("seed", now)
    if before != now:
        sys.stderr.write(
            f"truestep: the seed is {now} in the code, and was {before} when this training began: its random streams and the order "
            f"of its samples go on, and seed {now} has no effect. To train with it give ExactResume an empty directory.\n"
        )
    return int(before)


def refuse_fewer_epochs(place: dict[str, Any], epochs: float | None, option: str, directory: Path) -> None:
    """Raise an OptionError where the place is behind the last epoch that is asked for: nothing would be trained, in silence."""
    done = place["pass"]
    if epochs is not None and 0 < epochs < done:
        raise OptionError(
            f"{directory} holds a checkpoint of a training that has done {done} epochs, and {option}={epochs:g} asks for fewer, "
            f"so nothing would be trained. Write {option}={done + 1}, or more, or give ExactResume an empty directory."
        )


def weights_of(*models: Any) -> dict[str, list[int]]:
    """Return by name the shapes of what models have to load; a lazy one has no shape yet."""
    several = len(models) > 1
    return {
        f"{number}.{name}" if several else name: list(each.shape)
        for number, model in enumerate(models)
        for name, each in model.state_dict().items()
        if isinstance(each, Tensor) and not is_lazy(each)
    }


def refuse_other_model(place: dict[str, Any], now: dict[str, list[int]], directory: Path) -> None:
    """Raise an OptionError where a place was saved with another model: the framework would raise its own, or load a part of it."""
    before = place.get("weights")
    if before is None or not now:
        return
    changed = [
        f"{name} was {tuple(before[name])}, and is {tuple(now[name])}"
        for name in now
        if before.get(name, now[name]) != now[name]
    ]
    gone = [f"{name} was {tuple(before[name])}, and is gone" for name in before if name not in now]
    told = [*changed, *gone, *(f"{name} is new" for name in now if name not in before)]
    if told:
        more = f" (and {len(told) - 1} more)" if len(told) > 1 else ""
        raise OptionError(
            f"{directory} holds a checkpoint of another model: {told[0]}{more}. To go on with it put the model back as it was; to "
            "train this one give ExactResume an empty directory."
        )


def optimizers_of(optimizers: Iterable[Any]) -> list[dict[str, Any]]:
    """Return what the code gives its optimizers: the class and the numbers of the first group, before a schedule moves them."""
    found = []
    for optimizer in optimizers:
        group = optimizer.param_groups[0]
        given = {**group, "lr": group.get("initial_lr", group.get("lr"))}
        options = {name: each for name, each in given.items() if isinstance(each, int | float | None)}
        found.append({"kind": type(optimizer).__name__, "options": {**options, "initial_lr": None}})
    return found


def optimizers_as_begun(
    place: dict[str, Any] | None, now: list[dict[str, Any]], directory: Path
) -> list[dict[str, Any]]:
    """Return what the code gave its optimizers when the training began, after a look at what it gives them now."""
    if place is None or "optimizers" not in place:
        return now
    _refuse_other_optimizers(place, now, directory)
    begun: list[dict[str, Any]] = place["optimizers"]
    return begun


def _refuse_other_optimizers(place: dict[str, Any], now: list[dict[str, Any]], directory: Path) -> None:
    """Raise an OptionError where a place was saved with other optimizers; say which options of the code have no effect."""
    before = place["optimizers"]
    kinds = [", ".join(each["kind"] for each in those) for those in (before, now)]
    if kinds[0] != kinds[1]:
        raise OptionError(
            f"{directory} holds a checkpoint of another training: its optimizer was {kinds[0]}, and is {kinds[1]}, whose state is "
            "another one. Put it back as it was, or give ExactResume an empty directory."
        )
    for old, new in zip(before, now, strict=True):
        for name, value in new["options"].items():
            if name in old["options"] and old["options"][name] != value:
                sys.stderr.write(
                    f"truestep: {name} of {new['kind']} is {value} in the code, and was {old['options'][name]} when this training "
                    f"began: it goes on with the checkpoint's, and {name}={value} has no effect. To train with it give ExactResume "
                    "an empty directory.\n"
                )


class HookOfAnInstance:
    """A hook of a callback that says what to write where a trainer was given the class and calls it there."""

    def __init__(self, hook: Callable[..., None]) -> None:
        self._hook = hook
        self.__doc__ = hook.__doc__

    def __get__(self, instance: object, owner: type) -> Any:
        return MethodType(self._hook, instance) if instance is not None else partial(_refuse_class, owner)


def _refuse_class(owner: type, *_given: Any, **_named: Any) -> Never:
    library = owner.__module__.split(".")[2]
    raise OptionError(
        f"ts.{library}.{owner.__name__} was given to the Trainer as a class, which has no directory. Write "
        f'exact = ts.{library}.{owner.__name__}("runs/exact"), and callbacks=[exact].'
    )


def refuse_unprepared(accelerator: Any, loader: Any) -> None:
    """Raise an OptionError for arguments in another order, and what its `save_state` would lack for want of `prepare`."""
    call = "ts.accelerate.ExactResume(accelerator, loader, directory)"
    if not hasattr(accelerator, "prepare"):
        raise OptionError(f"{call} was given {a_type(accelerator)} where the Accelerator stands.")
    if isinstance(loader, nn.Module) or not hasattr(loader, "__iter__"):
        raise OptionError(
            f"{call} was given {a_type(loader)} where the training loader that accelerator.prepare returned stands."
        )
    for name, kind, lost in (
        ("_models", "model", "weights"),
        ("_optimizers", "optimizer", "moments or rate"),
    ):
        if not getattr(accelerator, name, True):
            raise OptionError(
                f"The accelerator has prepared no {kind}, so its save_state would save no {lost}. Write net, optimizer, loader = "
                f"accelerator.prepare(net, optimizer, loader) first, and then {call}."
            )


def prepared_optimizers(accelerator: Any) -> list[Any]:
    """Return the optimizers that were given to `accelerator.prepare`, without what it puts around them."""
    return [getattr(each, "optimizer", each) for each in getattr(accelerator, "_optimizers", ())]


def unkept_schedules(accelerator: Any) -> list[LRScheduler]:
    """Return the living schedules of prepared optimizers, where `accelerator.save_state` keeps none at all."""
    prepared = prepared_optimizers(accelerator)
    if not any("initial_lr" in group for each in prepared for group in each.param_groups):
        return []  # no schedule was ever made on them
    registered = getattr(accelerator, "_custom_objects", ())
    inside = [held for each in registered for held in (each, *getattr(each, "__dict__", {}).values())]
    if getattr(accelerator, "_schedulers", ()) or any(isinstance(each, LRScheduler) for each in inside):
        return []
    ids = {id(each) for each in prepared}
    living = [each for each in gc.get_objects() if issubclass(type(each), LRScheduler)]
    return [each for each in living if id(getattr(each.optimizer, "optimizer", each.optimizer)) in ids]


def refuse_unkept_schedules(schedules: Iterable[LRScheduler]) -> None:
    """Raise an OptionError for a schedule that has stepped and that no checkpoint holds: it would begin anew after a kill."""
    for each in schedules:
        if each._step_count > 1:  # the first is made with the schedule
            raise OptionError(
                f"The rate of a prepared optimizer is moved by {a_type(each)}, and save_state does not keep that: after "
                "a kill it would begin anew, with other rates. Write accelerator.register_for_checkpointing(schedule), or "
                "schedule = accelerator.prepare(schedule), before ts.accelerate.ExactResume(...)."
            )
