# SPDX-License-Identifier: Apache-2.0
"""Sentences about a run that several explanations need: which layer, which input, made where."""

from collections.abc import Callable, Iterator
from typing import Any

from truestep.explainer.crash import Crash
from truestep.explainer.origins import dataset_of_loop_at_line, line_that_created_value
from truestep.explainer.source import UserSourceLine, file_name_of_any_system
from truestep.explainer.values import (
    ValueOnLine,
    format_tensor_dtype_and_shape,
    format_tensor_shape,
    is_layer_at_crash,
    is_tensor_at_crash,
)


def made_at_line_phrase(line: UserSourceLine | None) -> str:
    """Return ", made at FILE:LINE: TEXT" for a line that is known, else nothing."""
    if line is None:
        return ""
    name = file_name_of_any_system(line.path)
    return f", made at {name}:{line.number}: {line.text}"


def describe_running_layer(crash: Crash, made: bool = True) -> str:
    """Return the layer that was running, `net.fc1 = Linear(...) (made at model.py:7)`; in a log "the layer on this line"."""
    layer = crash.layer
    if layer is None:
        return "the layer on this line"
    return f"{layer}{_where_layer_was_made(crash) if made else ''}"


def layer_input(crash: Crash) -> Any:
    """Return what the innermost layer was given; None where it can't be told."""
    layer = crash.layer
    if layer is None:
        return None
    names = layer.frame.locals()
    return next((names[name] for name in ("input", "x") if is_tensor_at_crash(names.get(name))), None)


def input_sentence(crash: Crash) -> str:
    """Return " got an input of shape ..." for the layer that was running."""
    tensor = layer_input(crash)
    return "" if tensor is None else f" got an input of shape {format_tensor_shape(tensor)}"


def _where_layer_was_made(crash: Crash) -> str:
    """Return where the layer on the user's line was made."""
    for each in crash.values:
        if is_layer_at_crash(each.value) and (line := crash.made(each.name)) is not None:
            return f" (made at {file_name_of_any_system(line.path)}:{line.number})"
    return ""


def tensors_on_line_where(crash: Crash, holds: Callable[[Any], bool]) -> list[ValueOnLine]:
    """Return the tensors on the user's line of which something holds."""
    return [each for each in crash.tensors if holds(each.value)]


def describe_value_with_origin(crash: Crash, each: ValueOnLine) -> str:
    """Return `name (float32 (4, 3)), made at FILE:LINE: TEXT`, and the data set that it is from."""
    return f"{each.name} ({format_tensor_dtype_and_shape(each.value)}){where_value_was_made(crash, each)}"


def where_value_was_made(crash: Crash, each: ValueOnLine) -> str:
    """Return ", made at FILE:LINE: TEXT" for a value, and the data set that it is from."""
    line = line_that_created_value(crash, each.name, each.value)
    return f"{made_at_line_phrase(line)}{dataset_of_loop_at_line(crash, line)}"


def shapes_on_line_text(crash: Crash) -> str:
    """Return the shapes of the tensors on the user's line."""
    return ", ".join(f"{each.name} {format_tensor_shape(each.value)}" for each in crash.tensors)


def shapes_and_origins_text(crash: Crash) -> str:
    """Return the shapes of the first two tensors on the user's line, with where each was made."""
    return "; ".join(
        f"{each.name} {format_tensor_shape(each.value)}{where_value_was_made(crash, each)}"
        for each in crash.tensors[:2]
    )


def loss_outputs_and_targets(crash: Crash) -> tuple[Any, Any] | None:
    """Return outputs and targets, as a loss function of torch's was given them."""
    for frame in reversed(crash.frames):
        names = frame.locals()
        if is_tensor_at_crash(names.get("input")) and is_tensor_at_crash(names.get("target")):
            return names["input"], names["target"]
    return None


def are_outputs_and_targets_swapped(pair: tuple[Any, Any] | None) -> bool:
    """Whether labels stand where a loss takes the outputs, and outputs where it takes labels."""
    if pair is None or pair[0].is_floating_point() or pair[0].is_complex():
        return False
    is_output: bool = pair[1].is_floating_point() and pair[1].dim() == pair[0].dim() + 1
    return is_output


def running_models(crash: Crash) -> Iterator[tuple[str, Any]]:
    """Yield the outermost models in the user's running functions, with their names."""
    seen = set[int]()
    for _, name, value in crash.users_locals():
        if is_layer_at_crash(value) and id(value) not in seen:
            seen.add(id(value))
            yield name, value


def num_parameters_if_all_frozen(model: Any) -> int:
    """Return how many parameters a model has, if none of them requires a gradient; else 0."""
    parameters = list(model.parameters())
    return 0 if any(each.requires_grad for each in parameters) else len(parameters)


def name_of_parameter_in_models(crash: Crash, tensor: Any) -> str | None:
    """Return the name that a model has for a parameter or buffer."""
    for owner, model in running_models(crash):
        for name, each in (*model.named_parameters(), *model.named_buffers()):
            if each is tensor:
                return f"{owner}.{name}"
    return None
