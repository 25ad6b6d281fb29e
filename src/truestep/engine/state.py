# SPDX-License-Identifier: Apache-2.0
"""A learner's state as a tree of tensors and plain values, and back."""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from truestep.core.errors import CheckpointError
from truestep.engine.added_groups_and_buffers import (
    add_late_buffers,
    add_late_optimizer_groups,
    expected_with_late_buffers,
    expected_with_late_groups,
    late_buffers,
    late_optimizer_groups,
)
from truestep.engine.counters import UpdateCounters
from truestep.engine.optimizer_states import loadable_optimizer_state, saved_optimizer_state
from truestep.engine.optimizers import KERNEL_OPTIONS, move_step_counts, optimizer_parameters
from truestep.engine.parts import LearnerParts
from truestep.engine.sharded_state import divided_learner_state
from truestep.engine.step import receive_update_report
from truestep.engine.unsaved_attributes import stateful_clip

_OPTIONAL = ("settings", "buffers", "clip")  # not in every checkpoint of a learner
_NEW = {
    "averages": "no average of the weights: ema= is new",
    "scaler": "no loss scale: loss_scale=, or precision=, is new",
}
_GONE = {
    "averages": "an average of the weights: ema= is gone",
    "scaler": "a loss scale: loss_scale=, or precision=, is another one",
}


def learner_state(learner: LearnerParts) -> dict[str, Any]:
    """Return modules, optimizers, scaler, schedules, averages and counters."""
    receive_update_report(learner)
    # The report first: it may move a schedule and count an update.
    state: dict[str, Any] = {
        "settings": learner_settings(learner)
        | learner.switches.state()
        | {
            "unsaved": learner.unsaved.moved(),
            "late_groups": late_optimizer_groups(learner),
            "late_buffers": late_buffers(learner),
        },
        "modules": _module_state(learner),
        "optimizers": [saved_optimizer_state(optimizer) for optimizer in learner.optimizers],
        "schedules": _without_functions(learner.schedules.state_dict()),
        "counters": learner.counters.state_dict(),
    }
    if learner.policy.scaler is not None:
        state["scaler"] = learner.policy.scaler.state_dict()
    if learner.average is not None:
        state["averages"] = learner.average.state_dict()
    if (clip := stateful_clip(learner.policy.clip)) is not None:
        state["clip"] = clip.state_dict()
    if masters := learner.weights.master_parameters:
        state["masters"] = {name: master.detach() for name, master in masters.items()}
    if buffers := learner.transient.state_dict():
        state["buffers"] = buffers
    return state


def _module_state(learner: LearnerParts) -> dict[str, Any]:
    """Return the module's state, with the weights also where the average stands in their place."""
    state = dict(learner.module.state_dict())
    behind = learner.average.original_weights_by_name(learner.module) if learner.average else {}
    return state | {name: weight.detach() for name, weight in behind.items() if name in state}


def check_learner_state(learner: LearnerParts, state: dict[str, Any]) -> None:
    """Raise a CheckpointError unless `state` fits the learner: same parts, same tensors, same number of optimizers."""
    # Compared with the state of now, and before anything is loaded: a refused one must leave the learner as it is.
    mine = learner_state(learner)
    mine["optimizers"] = expected_with_late_groups(learner, mine, state)
    mine["modules"] = expected_with_late_buffers(learner, mine["modules"], state)
    mine["modules"] = _with_saved_resized_buffers(learner.module, mine["modules"], state.get("modules", {}))
    problems = _state_differences(mine, state)
    problems += [
        f"an unexpected buffer {name}" for name in learner.transient.unknown(state.get("buffers", {}))
    ]
    if problems:
        listed = "\n".join(f"  {problem}" for problem in problems)
        raise CheckpointError(
            f"The checkpoint does not fit the learner {learner.name!r}. In the checkpoint:\n{listed}\nA run goes on with the model "
            "and the optimizer it was started with, whatever resume= says. Put them back as they were; or start a run of its own, "
            'ts.Run(..., resume="anew"), where ts.load_weights(module, the_old_directory, strict=False) takes over the weights '
            "that still fit."
        )


def _resizable_buffers(module: torch.nn.Module) -> dict[str, Tensor]:
    """Return the buffers that may grow in training, as observers of quantisation have; those of torch.nn tell the architecture."""
    return {
        f"{path}.{name}" if path else name: buffer
        for path, layer in module.named_modules(remove_duplicate=False)
        if not type(layer).__module__.startswith("torch.nn.")
        for name, buffer in layer.named_buffers(recurse=False, remove_duplicate=False)
    }


def _with_saved_resized_buffers(
    module: torch.nn.Module, mine: dict[str, Any], saved: dict[str, Any]
) -> dict[str, Any]:
    """Return `mine` with the saved ones for buffers that may have another size, with as many dimensions."""
    may_grow = _resizable_buffers(module).keys() & mine.keys() & saved.keys()
    return mine | {
        name: saved[name]
        for name in may_grow
        if isinstance(saved[name], Tensor) and saved[name].dim() == mine[name].dim()
    }


def _state_differences(mine: dict[str, Any], saved: dict[str, Any]) -> list[str]:
    new, gone = (
        [part for part in a if part not in b and part not in _OPTIONAL]
        for a, b in ((mine, saved), (saved, mine))
    )
    problems = [_NEW.get(part, f"no {part}") for part in new]
    problems += [_GONE.get(part, f"{part}, which this learner lacks") for part in gone]
    problems += _tensor_differences(mine["modules"], saved.get("modules", {}))
    if not problems:  # these have the weights' names: once is enough to say
        for part in {"averages", "masters"} & mine.keys():
            problems += [
                f"in its {part} {text}" for text in _tensor_differences(mine[part], saved.get(part, {}))
            ]
    here, there = (len(state.get("schedules", ())) for state in (mine, saved))
    if here != there:
        change = "is new" if not there else "is gone" if not here else "has changed"
        problems.append(f"{there or 'no'} schedules, here {here or 'none'}: schedule= {change}")
    if "counters" in saved:
        problems += UpdateCounters.differences(saved["counters"])
    return problems + _optimizer_differences(mine, saved)


def _optimizer_differences(mine: dict[str, Any], saved: dict[str, Any]) -> list[str]:
    """Return why the optimizers' states could not be loaded, or would be those of another kind of optimizer."""
    here, there = mine["optimizers"], saved.get("optimizers", [])
    if len(here) != len(there):
        return [f"another number of optimizers, {len(there)}, here {len(here)}"]
    names = saved.get("settings", {}).get("optimizers", ["an optimizer"] * len(there))
    problems = []
    for tree, other, name, own in zip(here, there, names, mine["settings"]["optimizers"], strict=True):
        groups, saved_groups = (state["param_groups"] for state in (tree, other))
        sizes, saved_sizes = ([len(group["params"]) for group in found] for found in (groups, saved_groups))
        lacks = {key for group in groups for key in group} - {key for group in saved_groups for key in group}
        absent = sorted(lacks - {"initial_lr"})  # a schedule's, told of above
        if sizes != saved_sizes:
            problems.append(
                f"{name} with groups of {saved_sizes} parameters, here {own} with groups of {sizes}"
            )
        elif lacks and name != own:
            problems.append(f"the optimizer {name}, here {own}")
        elif absent:
            problems.append(f"{name} without {', '.join(absent)}, here {own}")
    return problems


def _tensor_differences(mine: dict[str, Any], saved: dict[str, Any]) -> list[str]:
    from truestep.checkpoints.weight_mismatches import compare_weight_names

    found = compare_weight_names(_tensor_shapes(mine), _tensor_shapes(saved))
    differences = found.differences
    renamed = [f"{other}, expected {name}" for name, other in found.pairs.items() if name != other]
    others = (*differences.missing, *differences.unexpected, *differences.reshaped)
    return [*renamed, *map(str, others)]


def _tensor_shapes(tensors: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) if isinstance(value, Tensor) else () for name, value in tensors.items()}


def learner_settings(learner: LearnerParts) -> dict[str, Any]:
    """Return what else decides how the learner is trained, as text: its code's to choose, compared at a resume."""
    return {
        "optimizers": [type(optimizer).__name__ for optimizer in learner.optimizers],
        "schedules": learner.schedules.names,
        **learner.as_given,
        "options": [
            [{name: _repr_without_address(value) for name, value in group.items()} for group in groups]
            for groups in learner.given_options
        ],
    }


def _repr_without_address(value: Any) -> str:
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def changed_learner_settings(learner: LearnerParts, state: dict[str, Any]) -> list[str]:
    """Return what the code now gives otherwise than when `state` was taken; the code's is what is used."""
    now, saved = learner_settings(learner), state.get("settings", {})
    found = [
        f"{name}={now[name]}, before {saved[name]}"
        for name in now
        if name in saved and name != "options" and now[name] != saved[name]
    ]
    found += learner.schedules.differences(state["schedules"])
    found += [
        f"{name} had changed since it was made, and no checkpoint keeps it"
        for name in saved.get("unsaved", ())
    ]
    return found + learner.switches.differences(saved)


def _changed_options(
    learner: LearnerParts, state: dict[str, Any]
) -> Iterator[tuple[Optimizer, int, str, Any, str]]:
    """Yield each option that the code gives otherwise than `state`: its optimizer, group, name, value, and the saved one."""
    saved_options = state.get("settings", {}).get("options", [])
    for optimizer, groups, saved in zip(
        learner.optimizers, learner.given_options, saved_options, strict=False
    ):
        for number, (given, before) in enumerate(zip(groups, saved, strict=False)):
            for name, value in given.items():
                if name in before and before[name] != _repr_without_address(value):
                    yield optimizer, number, name, value, before[name]


def changed_optimizer_options(learner: LearnerParts, state: dict[str, Any]) -> list[str]:
    """Return which options of the optimizers the code gives otherwise than when the run was started."""
    return [
        f"{name.removeprefix('initial_')}={_repr_without_address(value)} in the code, {saved} in the checkpoint"
        + (f" (group {number})" if len(optimizer.param_groups) > 1 else "")
        for optimizer, number, name, value, saved in _changed_options(learner, state)
    ]


def use_given_optimizer_options(learner: LearnerParts, state: dict[str, Any]) -> None:
    """After a load: give the optimizers the options that the code has changed since `state` was taken.

    A rate that a schedule moves keeps its place in the schedule: it is scaled as its first value is.
    """
    for optimizer, number, name, value, _ in _changed_options(learner, state):
        group = optimizer.param_groups[number]
        if name == "initial_lr" and group[name]:
            group["lr"] = group["lr"] * (value / group[name])
        if isinstance(group[name], Tensor):
            group[name].fill_(value)
        else:
            group[name] = value
    learner.schedules.take_initial_rates()


@torch.no_grad()
def load_learner_state(learner: LearnerParts, state: dict[str, Any]) -> None:
    """Take over what `learner_state` returned; the caller has compared the structures before."""
    receive_update_report(learner)
    # first: what is saved of a parameter is divided as the parameter is
    add_late_optimizer_groups(learner, state)
    if learner.weights.are_divided:
        state = divided_learner_state(learner, state)
    learner.counters.load_state_dict(state["counters"])
    add_late_buffers(learner, state)
    for name, buffer in _resizable_buffers(learner.module).items():
        if name in state["modules"] and buffer.shape != state["modules"][name].shape:
            # torch's load_state_dict refuses another shape, and a buffer in the place of this one would lose its other names.
            buffer.resize_(state["modules"][name].shape)
    are_alike = _has_same_dtypes(learner.module.state_dict(), state["modules"])
    learner.module.load_state_dict(state["modules"])
    for name, master in learner.weights.master_parameters.items():
        master.copy_(state["masters"][name])
    for optimizer, saved in zip(learner.optimizers, state["optimizers"], strict=True):
        _load_optimizer(optimizer, saved, keep_dtypes=are_alike)
    learner.schedules.load_state_dict(state["schedules"])
    if learner.policy.scaler is not None:
        learner.policy.scaler.load_state_dict(state["scaler"])
    if learner.average is not None:
        learner.average.load_state_dict(state["averages"])
    learner.transient.load_state_dict(state.get("buffers", {}))
    if (clip := stateful_clip(learner.policy.clip)) is not None and "clip" in state:
        clip.load_state_dict(state["clip"])


def keep_buffers(learner: LearnerParts) -> Callable[[], None]:
    """Keep the buffers as they are; return what puts them back."""
    kept = {name: buffer.detach().clone() for name, buffer in learner.module.named_buffers()}

    @torch.no_grad()
    def restore_kept_buffers() -> None:
        for name, buffer in learner.module.named_buffers():
            if name in kept:
                if buffer.shape != kept[name].shape:
                    buffer.resize_(kept[name].shape)
                buffer.copy_(kept[name])

    return restore_kept_buffers


def _has_same_dtypes(own: dict[str, Any], saved: dict[str, Any]) -> bool:
    """Whether the weights were saved in the precision that they have now."""
    return all(
        own[name].dtype == tensor.dtype
        for name, tensor in saved.items()
        if isinstance(tensor, Tensor) and isinstance(own.get(name), Tensor)
    )


def _load_optimizer(optimizer: torch.optim.Optimizer, saved: dict[str, Any], *, keep_dtypes: bool) -> None:
    """Load an optimizer's state; which kernel runs it stays this machine's choice."""
    kernels = [{key: group.get(key) for key in KERNEL_OPTIONS} for group in optimizer.param_groups]
    saved, defaults = loadable_optimizer_state(saved), dict(optimizer.defaults)
    optimizer.load_state_dict(saved)
    # torch may add to them there, and a group that is added later would have options that it has not in a run without a stop
    optimizer.defaults.clear()
    optimizer.defaults.update(defaults)
    for group, kernel in zip(optimizer.param_groups, kernels, strict=True):
        group.update({key: value for key, value in kernel.items() if key in group})
    move_step_counts(optimizer)
    if keep_dtypes:
        _keep_dtypes(optimizer, saved)


def _keep_dtypes(optimizer: torch.optim.Optimizer, saved: dict[str, Any]) -> None:
    """Give each tensor of a state the dtype that it was saved in: torch casts them to their parameter's (8-bit moments, too)."""
    numbers = [number for group in saved["param_groups"] for number in group["params"]]
    for parameter, number in zip(optimizer_parameters(optimizer), numbers, strict=True):
        state = optimizer.state.get(parameter, {})
        for key, value in saved["state"].get(number, {}).items():
            now = state.get(key)
            if isinstance(value, Tensor) and isinstance(now, Tensor) and now.dtype != value.dtype:
                state[key] = value.to(now.device, copy=True)


def _without_functions(value: Any) -> Any:
    """Return a schedule's state without the functions in it, which the run's own code makes again."""
    if isinstance(value, dict):
        kept = {key: _without_functions(member) for key, member in value.items() if not callable(member)}
        return Counter(kept) if isinstance(value, Counter) else kept
    if isinstance(value, list):
        return [_without_functions(member) for member in value]
    return value
