# SPDX-License-Identifier: Apache-2.0
"""Casting a module's weights to a mode, and float32 master weights for the optimizer."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from truestep.core.module_inspection import NORMS
from truestep.engine.batches import map_batch_tensors
from truestep.engine.precision.base import Precision


@contextmanager
def restore_weights_on_error(module: nn.Module) -> Iterator[None]:
    """Give the module its own weights back if what follows fails: what was rounded to half precision could not be undone."""
    # `.data` throughout: the user's Parameter objects stay what they are, tied ones tied.
    kept = [(tensor, tensor.data) for tensor in (*module.parameters(), *module.buffers())]
    hooks = {part: (part._forward_pre_hooks.copy(), part._forward_hooks.copy()) for part in module.modules()}
    try:
        yield
    except BaseException:
        for tensor, data in kept:
            tensor.data = data
        for part, (before, after) in hooks.items():
            part._forward_pre_hooks, part._forward_hooks = before, after
        raise


def precision_of_weights(module: nn.Module) -> str:
    """Return the mode of weights for which nobody names one: a module in float64 was made so on purpose."""
    types = {tensor.dtype for tensor in module.parameters() if tensor.is_floating_point()}
    return "float64" if types == {torch.float64} else "float32"


def cast_weights(module: nn.Module, mode: Precision) -> None:
    """Bring the floating-point parameters and buffers of `module` to the mode's type, in place."""
    norms = [part for part in module.modules() if isinstance(part, NORMS)] if mode.float32_norms else []
    kept = {id(tensor) for norm in norms for tensor in (*norm.parameters(), *norm.buffers())}
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.is_floating_point() and id(tensor) not in kept and tensor.dtype != mode.weights:
            tensor.data = tensor.data.to(mode.weights)
    for norm in norms:  # they take half-precision inputs, compute in float32, and give half precision back
        norm.float()
        norm.register_forward_pre_hook(_inputs_to_float32)
        norm.register_forward_hook(partial(_output_cast, mode.weights))


def _inputs_to_float32(_: nn.Module, inputs: tuple[Any, ...]) -> Any:
    return cast_to_precision(inputs, torch.float32)


def _output_cast(dtype: torch.dtype, _: nn.Module, __: tuple[Any, ...], output: Tensor) -> Tensor:
    return output.to(dtype)


def cast_to_precision(value: Any, dtype: torch.dtype) -> Any:
    """Return `value` (any structure) with every floating-point tensor of it in `dtype`."""
    return map_batch_tensors(lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor, value)


def named_parameters_for_optimizer(module: nn.Module, mode: Precision) -> Iterator[tuple[str, nn.Parameter]]:
    """Yield what the optimizer is to work on: the parameters, or float32 masters of the half-precision ones."""
    for name, parameter in module.named_parameters():
        if mode.master_weights and parameter.dtype in (torch.float16, torch.bfloat16):
            yield name, nn.Parameter(parameter.detach().float(), requires_grad=parameter.requires_grad)
        else:
            yield name, parameter
