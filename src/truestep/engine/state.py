# SPDX-License-Identifier: Apache-2.0
"""A learner's state as a tree of tensors and JSON values, and back."""

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from truestep.errors import CheckpointError

if TYPE_CHECKING:
    from truestep.engine.learner import Learner

_KERNEL = ("fused", "foreach")
_OPTIONAL = ("settings", "buffers")  # not in every checkpoint of a learner
_SCHEDULED = ("lr", "momentum", "betas")  # what a schedule of torch's may move


def learner_state(learner: "Learner") -> dict[str, Any]:
    """Return modules, optimizers, scaler, schedules, averages and counters."""
    if learner.late is not None:
        learner.late.settle()
    state: dict[str, Any] = {
        "settings": settings(learner),
        "modules": dict(learner.module.state_dict()),
        "optimizers": [to_tree(optimizer.state_dict()) for optimizer in learner.optimizers],
        "schedules": to_tree(_without_functions(learner.schedules.state_dict())),
        "counters": {
            "attempts": learner.attempts,
            "updates": learner.updates,
            "skipped": learner.skipped,
            "skipped_in_a_row": learner.skipped_in_a_row,
            "overflows_in_a_row": learner.overflows_in_a_row,
            "micro_batch_in_use": learner.micro_batch_in_use,
        },
    }
    if learner.scaler is not None:
        state["scaler"] = learner.scaler.state_dict()
    if learner.average is not None:
        state["averages"] = learner.average.state_dict()
    masters = {
        name: target.detach()
        for name, weight, target in zip(learner.weight_names, learner.weights, learner.targets, strict=True)
        if weight is not target
    }
    if masters:
        state["masters"] = masters
    if buffers := learner.transient.state_dict():
        state["buffers"] = buffers
    return state


def check_learner_state(learner: "Learner", state: dict[str, Any]) -> None:
    """Raise a CheckpointError unless `state` fits the learner: same parts, same tensors, same number of optimizers."""
    problems = _differences(learner_state(learner), state)
    problems += [
        f"an unexpected buffer {name}" for name in learner.transient.unknown(state.get("buffers", {}))
    ]
    if problems:
        listed = "\n".join(f"  {problem}" for problem in problems)
        raise CheckpointError(
            f"The checkpoint does not fit the learner {learner.name!r}. In the checkpoint:\n{listed}\nA run goes on with the model "
            "and the optimizer it was started with; to take over weights alone, start a run in another directory and give it "
            "a module after ts.load_weights(module, this_directory)."
        )


def _differences(mine: dict[str, Any], saved: dict[str, Any]) -> list[str]:
    problems = [f"no {part}" for part in mine if part not in saved and part not in _OPTIONAL]
    problems += [
        f"{part}, which this learner lacks" for part in saved if part not in mine and part not in _OPTIONAL
    ]
    problems += _tensor_differences(mine["modules"], saved.get("modules", {}))
    if not problems:  # these have the weights' names: once is enough to say
        for part in {"averages", "masters"} & mine.keys():
            problems += [f"in its {part} {text}" for text in _tensor_differences(mine[part], saved[part])]
    here, there = (len(state.get("schedules", ())) for state in (mine, saved))
    if here != there:
        problems.append(f"another number of schedules, {there}, here {here}")
    return problems + _optimizer_differences(mine, saved)


def _optimizer_differences(mine: dict[str, Any], saved: dict[str, Any]) -> list[str]:
    """Return why the optimizers' states could not be loaded, or would be those of another kind of optimizer."""
    here, there = mine["optimizers"], saved.get("optimizers", [])
    if len(here) != len(there):
        return [f"another number of optimizers, {len(there)}, here {len(here)}"]
    names = saved.get("settings", {}).get("optimizers", ["an optimizer"] * len(there))
    problems = []
    for tree, other, name, own in zip(here, there, names, mine["settings"]["optimizers"], strict=True):
        groups, saved_groups = (from_tree(state)["param_groups"] for state in (tree, other))
        sizes, saved_sizes = ([len(group["params"]) for group in found] for found in (groups, saved_groups))
        if sizes != saved_sizes:
            problems.append(
                f"{name} with groups of {saved_sizes} parameters, here {own} with groups of {sizes}"
            )
        elif absent := {key for group in groups for key in group} - {
            key for group in saved_groups for key in group
        }:
            problems.append(f"{name} without {', '.join(sorted(absent))}, here {own}")
    return problems


def _tensor_differences(mine: dict[str, Any], saved: dict[str, Any]) -> list[str]:
    from truestep.engine.checkpoints.differences import compare

    found = compare(_shapes(mine), _shapes(saved))
    differences = found.differences
    renamed = [f"{other}, expected {name}" for name, other in found.pairs.items() if name != other]
    return renamed + [
        str(each) for each in (*differences.missing, *differences.unexpected, *differences.reshaped)
    ]


def _shapes(tensors: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) if isinstance(value, Tensor) else () for name, value in tensors.items()}


def settings(learner: "Learner") -> dict[str, Any]:
    """Return what else decides how the learner is trained, as text: its code's to choose, compared at a resume."""
    return {
        "optimizers": [type(optimizer).__name__ for optimizer in learner.optimizers],
        "schedules": learner.schedules.names,
        "clip": _shown(learner.clip),
        "ema": _shown(learner.options.ema),
        "micro_batch": _shown(learner.options.micro_batch),
        "precision": learner.precision.name,
        "starts_at": learner.starts_at,
    }


def _shown(value: Any) -> str:
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def changed_settings(learner: "Learner", state: dict[str, Any]) -> list[str]:
    """Return what the code now gives otherwise than when `state` was taken; the code's is what is used."""
    now, saved = settings(learner), state.get("settings", {})
    found = [
        f"{name}={now[name]}, before {saved[name]}"
        for name in now
        if name in saved and now[name] != saved[name]
    ]
    found += learner.schedules.differences(from_tree(state["schedules"]))
    return found


def changed_options(learner: "Learner", state: dict[str, Any]) -> list[str]:
    """Return which options of the optimizers the code gives otherwise than `state`, whose values are the ones used."""
    found: list[str] = []
    for optimizer, tree in zip(learner.optimizers, state["optimizers"], strict=True):
        saved_groups = from_tree(tree)["param_groups"]
        for number, (group, saved) in enumerate(zip(optimizer.param_groups, saved_groups, strict=False)):
            where = f" (group {number})" if len(saved_groups) > 1 else ""
            found += [
                f"{name}={group[name]} in the code, {saved[name]} in the checkpoint{where}"
                for name in _fixed_options(group)
                if name in saved and bool(group[name] != saved[name])
            ]
    return found


def _fixed_options(group: dict[str, Any]) -> list[str]:
    """Return the options of a group that nothing moves while it trains."""
    moved = _SCHEDULED if "initial_lr" in group else ()
    return [name for name in group if name not in ("params", *_KERNEL, *moved)]


@torch.no_grad()
def load_learner_state(learner: "Learner", state: dict[str, Any]) -> None:
    """Take over what `learner_state` returned; the caller has compared the structures before."""
    if learner.late is not None:
        learner.late.settle()
    learner.module.load_state_dict(state["modules"])
    for name, weight, target in zip(learner.weight_names, learner.weights, learner.targets, strict=True):
        if weight is not target:
            target.copy_(state["masters"][name])
    for optimizer, saved in zip(learner.optimizers, state["optimizers"], strict=True):
        _load_optimizer(optimizer, from_tree(saved))
    learner.schedules.load_state_dict(from_tree(state["schedules"]))
    if learner.scaler is not None:
        learner.scaler.load_state_dict(state["scaler"])
    if learner.average is not None:
        learner.average.load_state_dict(state["averages"])
    learner.transient.load_state_dict(state.get("buffers", {}))
    for name, value in state["counters"].items():
        setattr(learner, name, value)


def _load_optimizer(optimizer: torch.optim.Optimizer, saved: dict[str, Any]) -> None:
    """Load an optimizer's state; which kernel runs it stays this machine's choice."""
    kernels = [{key: group.get(key) for key in _KERNEL} for group in optimizer.param_groups]
    optimizer.load_state_dict(saved)
    for group, kernel in zip(optimizer.param_groups, kernels, strict=True):
        group.update({key: value for key, value in kernel.items() if key in group})


def to_tree(value: Any, path: str = "") -> Any:
    """Return `value` with what JSON lacks spelt out: tuples, and dicts whose keys are not strings."""
    if isinstance(value, dict):
        is_counter = isinstance(value, Counter)
        if not is_counter and all(isinstance(key, str) and not key.startswith("__") for key in value):
            return {key: to_tree(member, f"{path}/{key}") for key, member in value.items()}
        pairs = [[to_tree(key, path), to_tree(member, f"{path}/{key}")] for key, member in value.items()]
        return {"__counter__" if is_counter else "__dict__": pairs}
    if isinstance(value, tuple):
        return {"__tuple__": [to_tree(member, f"{path}[{index}]") for index, member in enumerate(value)]}
    if isinstance(value, list):
        return [to_tree(member, f"{path}[{index}]") for index, member in enumerate(value)]
    if value is None or isinstance(value, bool | int | float | str | Tensor):
        return value
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:  # a NumPy scalar
        return value.item()
    raise CheckpointError(
        f"A checkpoint holds tensors, numbers, strings, lists and dicts, so that it can be read without running code; "
        f"{path or 'the state'} is a {type(value).__name__}. Keep it as one of those."
    )


def _without_functions(value: Any) -> Any:
    """Return a schedule's state without the functions in it, which the run's own code makes again."""
    if isinstance(value, dict):
        kept = {key: _without_functions(member) for key, member in value.items() if not callable(member)}
        return Counter(kept) if isinstance(value, Counter) else kept
    if isinstance(value, list):
        return [_without_functions(member) for member in value]
    return value


def from_tree(value: Any) -> Any:
    """Undo `to_tree`."""
    if isinstance(value, dict):
        if "__tuple__" in value:
            return tuple(from_tree(member) for member in value["__tuple__"])
        for name, kind in (("__dict__", dict), ("__counter__", Counter)):
            if name in value:
                return kind({from_tree(key): from_tree(member) for key, member in value[name]})
        return {key: from_tree(member) for key, member in value.items()}
    if isinstance(value, list):
        return [from_tree(member) for member in value]
    return value
