# SPDX-License-Identifier: Apache-2.0
"""What a loop has added: groups (`add_param_group`, for layers that it unfreezes) and buffers; kept, and made again."""

from collections.abc import Iterator
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from truestep.engine.optimizers import optimizer_parameters
from truestep.engine.parts import LearnerParts


def late_optimizer_groups(learner: LearnerParts) -> list[list[Any]]:
    """Return the groups beyond those that the code begins with: of which optimizer, and their parameters by name."""
    names = {
        id(each): name for name, each in zip(learner.weights.names, learner.weights.stepped, strict=True)
    }
    return [
        [number, [names[id(parameter)] for parameter in group["params"]]]
        for number, (optimizer, given) in enumerate(
            zip(learner.optimizers, learner.given_options, strict=True)
        )
        for group in optimizer.param_groups[len(given) :]
        if all(id(parameter) in names for parameter in group["params"])
    ]


def expected_with_late_groups(
    learner: LearnerParts, mine: dict[str, Any], saved: dict[str, Any]
) -> list[Any]:
    """Return the optimizers' states as they are with the groups of a checkpoint that a loop has added, and this one has not yet."""
    states = [dict(state, param_groups=list(state["param_groups"])) for state in mine["optimizers"]]
    for number, _ in _missing_groups(learner, saved):
        groups = states[number]["param_groups"]
        groups.append(saved["optimizers"][number]["param_groups"][len(groups)])
    return states


def add_late_optimizer_groups(learner: LearnerParts, saved: dict[str, Any]) -> None:
    """Add the groups of a checkpoint that a loop has added, and this one has not yet."""
    stepped = dict(zip(learner.weights.names, learner.weights.stepped, strict=True))
    for number, names in _missing_groups(learner, saved):
        optimizer = learner.optimizers[number]
        optimizer.add_param_group({"params": [stepped[name] for name in names]})
        _ignore_repeated_group(optimizer, {id(stepped[name]) for name in names})


def _missing_groups(learner: LearnerParts, saved: dict[str, Any]) -> Iterator[tuple[int, list[str]]]:
    stepped = dict(zip(learner.weights.names, learner.weights.stepped, strict=True))
    for number, names in saved.get("settings", {}).get("late_groups", ()):
        if number < len(learner.optimizers) and stepped.keys() >= set(names):
            held = set(map(id, optimizer_parameters(learner.optimizers[number])))
            if not any(id(stepped[name]) in held for name in names):
                yield number, names


def _ignore_repeated_group(optimizer: Optimizer, made: set[int]) -> None:
    """Leave the group as it is where the loop goes through the body again in which it added it: torch would refuse it."""
    add = optimizer.add_param_group

    def add_param_group(group: dict[str, Any]) -> None:
        given = group["params"]
        listed = [given] if hasattr(given, "grad_fn") else list(given)
        if set(map(id, listed)) != made:
            add(group | {"params": listed})

    optimizer.__dict__["add_param_group"] = add_param_group


def late_buffers(learner: LearnerParts) -> list[str]:
    """Return the names of the persistent buffers beyond those that the code begins with."""
    return sorted(learner.transient.persistent_buffer_names() - learner.transient.made_persistent)


def expected_with_late_buffers(
    learner: LearnerParts, mine: dict[str, Any], saved: dict[str, Any]
) -> dict[str, Any]:
    """Return the modules' state as it is with the buffers of a checkpoint that a forward has registered, and none here yet."""
    return mine | {name: saved["modules"][name] for name in _missing_buffers(learner, saved)}


def add_late_buffers(learner: LearnerParts, saved: dict[str, Any]) -> None:
    """Register the buffers of a checkpoint that a forward has registered, and this one has not yet."""
    for name in _missing_buffers(learner, saved):
        path, _, last = name.rpartition(".")
        device = next((each.device for each in learner.module.parameters()), None)
        value = saved["modules"][name].to(device, copy=True)
        learner.module.get_submodule(path).register_buffer(last, value)


def _missing_buffers(learner: LearnerParts, saved: dict[str, Any]) -> list[str]:
    paths = {path for path, _ in learner.module.named_modules(remove_duplicate=False)}
    return [
        name
        for name in saved.get("settings", {}).get("late_buffers", ())
        if name.rpartition(".")[0] in paths
        and isinstance(saved["modules"].get(name), Tensor)
        and name not in learner.transient.persistent_buffer_names()
    ]
