# SPDX-License-Identifier: Apache-2.0
"""Uses of `ExactResume` under which a training would go on to other bits, or save nothing; each is refused."""

import gc
import sys
from collections.abc import Callable, Iterable
from functools import partial
from types import MethodType
from typing import Any, Never

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim.lr_scheduler import LRScheduler

from truestep.core.errors import OptionError
from truestep.core.wording import a_type
from truestep.frameworks.kept import KeptCheckpoints

_WORDS = {
    "samples": "the data had {} samples, and has {}",
    "batch_size": "batch_size was {}, and is {}",
    "accumulation": "{} batches made a step, and {} do",
}
_Optimizers = list[dict[str, Any]]


class Beginning:
    """What a training was begun with: kept with each place, and compared with what the code gives where it goes on."""

    def __init__(self, kept: KeptCheckpoints) -> None:
        self._kept = kept
        self.facts: dict[str, Any] = {}

    def _refuse(self, what: str) -> Never:
        raise OptionError(
            f"{self._kept.directory} holds a checkpoint of another {what} Put it back as it was, or give ExactResume an empty "
            "directory."
        )

    def data(self, loader: Any, accumulation: int) -> None:
        """Take the numbers by which a place in a pass is counted; refuse others: so many batches are not the same samples."""
        now = self.facts["habits"] = _habits_of(loader, accumulation)
        before = self._kept.place.get("habits", {})
        changed = {
            name: (before[name], now[name])
            for name in now
            if None not in (before.get(name), now[name]) and before[name] != now[name]
        }
        if told := [_WORDS[name].format(*both) for name, both in changed.items() if name in _WORDS]:
            self._refuse(
                f"training: {'; '.join(told)}. The place in the epoch would be another one, and the bits too."
            )
        if "workers" in changed:
            old, new = changed["workers"]
            _say(
                f"num_workers was {old}, and is {new}: the order of the samples stays, and what the data draw at random for a "
                f"sample is not what a training draws that was not killed. num_workers={old} keeps it."
            )

    def seed(self) -> None:
        """Take the seed that the training began with; say so where the code has set another since: its streams go on."""
        now = torch.initial_seed()
        before = self.facts["seed"] = self._kept.place.get("seed", now)
        if before != now:
            _say(
                f"the seed is {now} in the code, and was {before} when this training began: its random streams and the order of "
                f"its samples go on, and seed {now} has no effect. To train with it give ExactResume an empty directory."
            )

    def step(self, now: int | None, call: str) -> None:
        """Refuse to begin at another step than that of the newest checkpoint."""
        newest = self._kept.newest()
        if newest is not None and now != newest.step:
            raise OptionError(
                f"{self._kept.directory} holds a checkpoint of step {newest.step}, and this training does not begin there. Write "
                f"{call}, or give ExactResume an empty directory."
            )

    def epochs(self, epochs: float | None, option: str) -> None:
        """Refuse fewer epochs than are done: nothing would be trained, in silence."""
        done = self._kept.place.get("pass", 0)
        if epochs is not None and 0 < epochs < done:
            raise OptionError(
                f"{self._kept.directory} holds a checkpoint of a training that has done {done} epochs, and {option}={epochs:g} "
                f"asks for fewer, so nothing would be trained. Write {option}={done + 1}, or more, or give ExactResume an empty "
                "directory."
            )

    def weights(self, now: dict[str, list[int]]) -> None:
        """Take the shapes of the weights; refuse others: the framework would raise its own, or load a part of them."""
        self.facts["weights"] = now
        before = self._kept.place.get("weights")
        if not before or not now:
            return
        told = [
            f"{name} was {tuple(old)}, and is {tuple(now[name]) if name in now else 'gone'}"
            for name, old in sorted(before.items(), key=lambda each: each[0] not in now)
            if now.get(name) != old
        ]
        told += [f"{name} is new" for name in now if name not in before]
        if told:
            self._refuse(f"model: {told[0]}{f' (and {len(told) - 1} more)' if told[1:] else ''}.")

    def optimizers(self, now: _Optimizers) -> None:
        """Take the optimizers' options; refuse those of other classes, and say which options of the code have no effect."""
        before: _Optimizers = self._kept.place.get("optimizers", now)
        self.facts["optimizers"] = before
        kinds = [", ".join(each["kind"] for each in those) for those in (before, now)]
        if kinds[0] != kinds[1]:
            self._refuse(
                f"training: its optimizer was {kinds[0]}, and is {kinds[1]}, whose state is another one."
            )
        for old, new in zip(before, now, strict=True):
            for name, value in new["options"].items():
                if old["options"].get(name, value) != value:
                    _say(
                        f"{name} of {new['kind']} is {value} in the code, and was {old['options'][name]} when this training began: "
                        f"it goes on with the checkpoint's, and {name}={value} has no effect. To train with it give ExactResume an "
                        "empty directory."
                    )


def _say(words: str) -> None:
    sys.stderr.write(f"truestep: {words}\n")


def _habits_of(loader: Any, accumulation: int) -> dict[str, int | None]:
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


def weights_of(*models: Any) -> dict[str, list[int]]:
    """Return by name the shapes of what models have to load; a lazy one has no shape yet."""
    return {
        f"{number}.{name}" if models[1:] else name: list(each.shape)
        for number, model in enumerate(models)
        for name, each in model.state_dict().items()
        if isinstance(each, Tensor) and not is_lazy(each)
    }


def optimizers_of(optimizers: Iterable[Any]) -> _Optimizers:
    """Return what the code gives its optimizers: the class and the numbers of the first group, before a schedule moves them."""
    found = []
    for optimizer in optimizers:
        group = optimizer.param_groups[0]
        given = {**group, "lr": group.get("initial_lr", group.get("lr")), "initial_lr": None}
        options = {name: each for name, each in given.items() if isinstance(each, int | float | None)}
        found.append({"kind": type(optimizer).__name__, "options": options})
    return found


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
