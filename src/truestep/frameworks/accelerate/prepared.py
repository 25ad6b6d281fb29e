# SPDX-License-Identifier: Apache-2.0
"""What `accelerator.save_state` would not keep, since it was never given to the accelerator."""

import gc
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader, IterableDataset

from truestep.core.errors import OptionError
from truestep.core.wording import a_type, counted

_ORDER = ["accelerator", "loader", "directory"]
_PREPARED = "net, optimizer, loader = accelerator.prepare(net, optimizer, loader)"
_MADE = "loader = accelerator.prepare(DataLoader(data_set, batch_size=32, shuffle=True))"
_CALL = "ts.accelerate.ExactResume(accelerator, loader, directory)"


def refuse_unprepared(accelerator: Any, loader: Any, directory: Any) -> None:
    """Raise an OptionError for arguments in another order, what is no loader, and a model or an optimizer that was not prepared."""
    kinds = [_kind(each) for each in (accelerator, loader, directory)]
    if kinds != _ORDER and sorted(kinds) == sorted(_ORDER):
        folder = next(each for each in (accelerator, loader, directory) if isinstance(each, str | Path))
        raise OptionError(
            f"ts.accelerate.ExactResume was given the {kinds[0]}, the {kinds[1]} and the {kinds[2]}: they are exchanged. Write "
            f'ts.accelerate.ExactResume(accelerator, loader, "{folder}").'
        )
    if kinds[0] != "accelerator":
        raise OptionError(
            f"ts.accelerate.ExactResume was given {a_type(accelerator)} where the Accelerator stands. Write {_CALL}."
        )
    if kinds[1] != "loader":
        what, line = _instead_of_loader(loader)
        raise OptionError(
            f"{_CALL} was given {what} where the training loader that accelerator.prepare returned stands. Write {line}, and "
            f"then {_CALL}."
        )
    for name, kind, lost in (
        ("_models", "model", "weights"),
        ("_optimizers", "optimizer", "moments or rate"),
    ):
        if not getattr(accelerator, name, True):
            raise OptionError(
                f"The accelerator has prepared no {kind}, so its save_state would save no {lost}. Write {_PREPARED} "
                f"first, and then {_CALL}."
            )


def say_unprepared(loader: Any) -> None:
    """Say what Accelerate leaves out for a loader that it has not returned."""
    is_theirs = type(loader).__module__.startswith("accelerate.")  # one without its first batches has no mark
    if not is_theirs and not getattr(loader, "_is_accelerate_prepared", False):
        sys.stderr.write(
            "truestep: accelerator.prepare has not returned the loader that ts.accelerate.ExactResume was given, so its batches "
            "stay on the CPU, and no accumulation ends with an epoch. Write loader = accelerator.prepare(loader) first.\n"
        )


def _kind(given: Any) -> str:
    if hasattr(given, "prepare"):
        return "accelerator"
    if isinstance(given, str | Path):
        return "directory"
    # a wrapper of a DataLoader that hands on its attributes is gone through as one
    is_one = hasattr(given, "__iter__") and any(
        getattr(given, name, None) is not None for name in ("batch_sampler", "sampler")
    )
    is_stream = isinstance(getattr(given, "dataset", None), IterableDataset)
    return "loader" if isinstance(given, DataLoader) or is_one or is_stream else "other"


def _instead_of_loader(given: Any) -> tuple[str, str]:
    """Return what was given in the loader's place, and the line that makes one."""
    if isinstance(given, list | tuple):
        loaders = [f"[{number}]" for number, each in enumerate(given) if _kind(each) == "loader"]
        if loaders and any(isinstance(each, nn.Module | torch.optim.Optimizer) for each in given):
            return f"all that prepare returned, {a_type(given)} with the loader at {loaders[0]},", _PREPARED
        if loaders:
            return (
                f"{a_type(given)} of {counted(len(loaders), 'loader')}",
                "loader, test_loader = accelerator.prepare(loader, test_loader)",
            )
        return f"{a_type(given)} of {len(given)}", _MADE
    return a_type(given), _PREPARED if isinstance(given, nn.Module | torch.optim.Optimizer) else _MADE


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
