# SPDX-License-Identifier: Apache-2.0
"""Copies of a model whose tensors have shapes and no values; sharing between tensors and between modules survives."""

import copy
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from truestep.core.modules import as_module
from truestep.core.wording import error_line
from truestep.model.calling import (
    Arguments,
    forward_arguments,
    forward_tensors,
    map_forward_arguments,
    run_forward,
    undisturbed_model,
)

T = TypeVar("T")


def copy_model_with(model: nn.Module, change: Callable[[Tensor], Tensor]) -> nn.Module:
    """Return a deep copy of the model with every tensor replaced by `change(tensor)`; no values are copied."""
    memo: dict[int, object] = {}
    for tensor in _tensors(model):
        if id(tensor) not in memo:
            new = change(tensor.detach())
            is_parameter = isinstance(tensor, nn.Parameter)
            memo[id(tensor)] = nn.Parameter(new, requires_grad=tensor.requires_grad) if is_parameter else new
    return copy.deepcopy(model, memo)


def _tensors(model: nn.Module) -> Iterator[Tensor]:
    yield from model.parameters()
    yield from model.buffers()
    for module in model.modules():
        for name, value in vars(module).items():  # tensors that were never registered, in lists and dicts too
            if name not in ("_parameters", "_buffers", "_modules"):
                yield from forward_tensors(value if isinstance(value, Tensor | list | tuple | dict) else None)


def meta_for_summary(tensor: Tensor) -> Tensor:
    """Return the tensor without its values."""
    return tensor.to("meta")


def meta_for_summary_but_lengths(tensor: Tensor) -> Tensor:
    """Do the same, but leave whole numbers in one dimension on the CPU: torch reads the lengths of sequences there."""
    is_lengths = tensor.dim() == 1 and tensor.is_cpu and not tensor.is_floating_point()
    return tensor if is_lengths else meta_for_summary(tensor)


def run_without_values(
    run: Callable[[nn.Module, Arguments], T], model: nn.Module, arguments: Arguments
) -> tuple[T | None, str]:
    """Return what `run` gives for a copy without values; None, and why in short, where the model does not run so."""
    for change in (meta_for_summary, meta_for_summary_but_lengths):
        try:
            made = copy_model_with(model, meta_for_summary)
            return run(made, map_forward_arguments(arguments, change)), ""
        except Exception as error:  # noqa: BLE001 - whatever a model does without values
            cause = error.__cause__ or error
    return None, error_line(cause)[:150]


def sized_by_batch(model: object, batch: Any, owner: str) -> tuple[nn.Module, Arguments, list[str]]:
    """Return the module and what its forward takes; for lazy layers a copy that the batch has sized, and a note of it."""
    module = as_module(model, owner)
    arguments = forward_arguments(module, batch)
    if not any(torch.nn.parameter.is_lazy(each) for each in (*module.parameters(), *module.buffers())):
        return module, arguments, []
    with undisturbed_model(module):
        sized = copy.deepcopy(module)
        run_forward(sized, arguments)
    note = "Lazy layers were sized by this batch in a copy; the model itself still waits for its first batch."
    return sized, arguments, [note]
