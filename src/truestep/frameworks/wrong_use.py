# SPDX-License-Identifier: Apache-2.0
"""Uses of `ExactResume` under which a training would go on to other bits, or save nothing; each is refused."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import MethodType
from typing import Any, Never

from torch import nn

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
    """Raise an OptionError for arguments in another order, and for models that `accelerator.save_state` would not save."""
    call = "ts.accelerate.ExactResume(accelerator, loader, directory)"
    if not hasattr(accelerator, "prepare"):
        raise OptionError(f"{call} was given {a_type(accelerator)} where the Accelerator stands.")
    if isinstance(loader, nn.Module) or not hasattr(loader, "__iter__"):
        raise OptionError(
            f"{call} was given {a_type(loader)} where the training loader that accelerator.prepare returned stands."
        )
    if not getattr(accelerator, "_models", True):
        raise OptionError(
            "The accelerator has prepared no model, so its save_state would save no weights. Write net, optimizer, loader = "
            f"accelerator.prepare(net, optimizer, loader) first, and then {call}."
        )
