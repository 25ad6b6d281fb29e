# SPDX-License-Identifier: Apache-2.0
"""Whether `schedule=` was given a function that makes a schedule, said before it is called."""

import difflib
import inspect
from typing import Any

from torch.optim import lr_scheduler
from torch.optim.lr_scheduler import LRScheduler

from truestep.core.errors import OptionError
from truestep.core.schedule_units import Counting

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


def check_schedule_factory(factory: Any, learner: str) -> None:
    """Raise an OptionError unless `factory` can be called with an optimizer alone."""
    if isinstance(factory, Counting):
        check_schedule_factory(factory.factory, learner)
        return
    if not callable(factory):
        raise OptionError(
            f"schedule={_shown(factory)} of {learner!r} is no function that makes a schedule. The optimizer is made after the "
            f"module is on its device, and its schedule after it: write schedule={_instead_of(factory)}."
        )
    try:
        inspect.signature(factory).bind(None)
    except TypeError as error:
        name = getattr(factory, "__name__", type(factory).__name__)
        raise OptionError(
            f"schedule={name} of {learner!r} was called with the optimizer alone, and that is not enough: {error}. Write what "
            f"it needs: schedule={_written(name)}."
        ) from None
    except ValueError:  # no signature to read: the call will tell
        return


def _shown(factory: Any) -> str:
    return f"{type(factory).__name__}(...)" if isinstance(factory, LRScheduler) else repr(factory)


def _instead_of(factory: Any) -> str:
    if isinstance(factory, LRScheduler):
        return _written(type(factory).__name__)
    words = {**_OURS, **{name: name for name in _OURS.values()}}
    close = difflib.get_close_matches(str(factory).lower(), words, n=1, cutoff=0.5)
    return _written(words[close[0]] if close else "warmup_cosine")


def _written(name: str) -> str:
    """Return what makes a schedule of this name; those of torch's need to be told what they count."""
    if name in _OURS.values():
        return f"lambda o: ts.{name}(o, {_ARGUMENTS.get(name, 'warmup_steps=100, total_steps=2000')})"
    if hasattr(lr_scheduler, name):
        torchs = f"lambda o: torch.optim.lr_scheduler.{name}(o, ...)"
        return f"ts.per_epoch({torchs}) to step it after each epoch, ts.per_update(...) after each update"
    return f"lambda o: {name}(o, ...)"
