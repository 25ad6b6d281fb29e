# SPDX-License-Identifier: Apache-2.0
"""Buffers that a module registers while it is trained (statistics of the first batch): kept by name, and made again."""

from typing import Any

from torch import Tensor

from truestep.engine.parts import LearnerParts


def late_buffers(learner: LearnerParts) -> list[str]:
    """Return the names of the persistent buffers beyond those that the code begins with."""
    return sorted(learner.transient.persistent() - learner.transient.made_persistent)


def expected_with_late_buffers(
    learner: LearnerParts, mine: dict[str, Any], saved: dict[str, Any]
) -> dict[str, Any]:
    """Return the modules' state as it is with the buffers of a checkpoint that a forward has registered, and none here yet."""
    return mine | {name: saved["modules"][name] for name in _missing(learner, saved)}


def add_late_buffers(learner: LearnerParts, saved: dict[str, Any]) -> None:
    """Register the buffers of a checkpoint that a forward has registered, and this one has not yet."""
    for name in _missing(learner, saved):
        path, _, last = name.rpartition(".")
        device = next((each.device for each in learner.module.parameters()), None)
        value = saved["modules"][name].to(device, copy=True)
        learner.module.get_submodule(path).register_buffer(last, value)


def _missing(learner: LearnerParts, saved: dict[str, Any]) -> list[str]:
    paths = {path for path, _ in learner.module.named_modules(remove_duplicate=False)}
    return [
        name
        for name in saved.get("settings", {}).get("late_buffers", ())
        if name.rpartition(".")[0] in paths
        and isinstance(saved["modules"].get(name), Tensor)
        and name not in learner.transient.persistent()
    ]
