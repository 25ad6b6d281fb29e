# SPDX-License-Identifier: Apache-2.0
"""What `accelerator.save_state` would not keep, since it was never given to the accelerator."""

import gc
from typing import Any

from torch import nn
from torch.optim.lr_scheduler import LRScheduler

from truestep.core.errors import OptionError
from truestep.core.wording import a_type

_CALL = "ts.accelerate.ExactResume(accelerator, loader, directory)"


def refuse_unprepared(accelerator: Any, loader: Any) -> None:
    """Raise an OptionError for arguments in another order, and a model or an optimizer that was not prepared."""
    if not hasattr(accelerator, "prepare"):
        raise OptionError(f"{_CALL} was given {a_type(accelerator)} where the Accelerator stands.")
    if isinstance(loader, nn.Module) or not hasattr(loader, "__iter__"):
        raise OptionError(
            f"{_CALL} was given {a_type(loader)} where the training loader that accelerator.prepare returned stands."
        )
    for name, kind, lost in (
        ("_models", "model", "weights"),
        ("_optimizers", "optimizer", "moments or rate"),
    ):
        if not getattr(accelerator, name, True):
            raise OptionError(
                f"The accelerator has prepared no {kind}, so its save_state would save no {lost}. Write net, optimizer, loader = "
                f"accelerator.prepare(net, optimizer, loader) first, and then {_CALL}."
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


def refuse_stepped(schedules: list[LRScheduler]) -> None:
    """Raise an OptionError for a schedule that has stepped: it would begin anew after a kill."""
    for each in schedules:
        if each._step_count > 1:  # the first is made with the schedule
            raise OptionError(
                f"The rate of a prepared optimizer is moved by {a_type(each)}, and save_state does not keep that: after "
                "a kill it would begin anew, with other rates. Write accelerator.register_for_checkpointing(schedule), or "
                "schedule = accelerator.prepare(schedule), before ts.accelerate.ExactResume(...)."
            )
