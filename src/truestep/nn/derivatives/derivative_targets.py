# SPDX-License-Identifier: Apache-2.0
"""What is differentiated, and with respect to what: inputs, or named parameters of a module."""

import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from truestep.core.errors import LossError, OptionError
from truestep.core.module_inspection import as_module, original_module
from truestep.core.text_formatting import a_type
from truestep.nn.derivatives.side_effect_free_call import (
    autocast_disabled,
    check_differentiable,
    half_to_float32_under_autocast,
    preserve_modules_while_deriving,
)
from truestep.nn.layer_lookup import match_layer_names_with_children, refuse_lazy_layers

Patterns = str | Sequence[str]
_INSTEAD = (
    "Give dense, real floating-point tensors (x.float(), embedded tokens), and what is not differentiated inside the function: "
    'lambda x: net(x, labels). Or ask for parameters="*".'
)


@dataclass(frozen=True)
class FunctionToDifferentiate:
    """A function of tensors without side effects, and the point where its derivatives are taken.

    Attributes:
        run: the function of (primals, inputs); a module's buffers, modes and `.grad` stay as they are.
        primals: the inputs, or the parameters called `names`.
        inputs: what the user gave.
    """

    run: Callable[[tuple[Tensor, ...], tuple[Any, ...]], Tensor]
    primals: tuple[Tensor, ...]
    inputs: tuple[Any, ...]
    names: tuple[str, ...] | None

    @classmethod
    def of(
        cls,
        function: Callable[..., Tensor],
        inputs: tuple[Any, ...],
        parameters: Patterns | None,
        purpose: str | None = None,
    ) -> "FunctionToDifferentiate":
        """Read a user's arguments; with a `purpose` layers that mix examples are refused because of it."""
        if not callable(function):
            raise OptionError(f"A derivative is of a function or a module, got {type(function).__name__}.")
        if (called := original_module(function)) is not None:
            refuse_lazy_layers(called)
        if parameters is None:
            _check_inputs(inputs)
            primals = tuple(map(half_to_float32_under_autocast, inputs))
            run = _without_side_effects(
                function, lambda given, _: function(*map(_copy_tensor, given)), primals[0].device, purpose
            )
            return cls(run, primals, primals, None)
        module = _module_to_call_functionally(function)
        named = derivative_parameters(module, parameters)
        names, primals = tuple(named), tuple(named.values())

        def call_with_parameters(values: tuple[Tensor, ...], given: tuple[Any, ...]) -> Any:
            return functional_call(
                module, dict(zip(names, values, strict=True)), tuple(map(_copy_tensor, given))
            )

        run = _without_side_effects(function, call_with_parameters, primals[0].device, purpose)
        return cls(run, primals, tuple(map(half_to_float32_under_autocast, inputs)), names)

    def call(self, *primals: Tensor) -> Tensor:
        """Return the function's value for other primals and the same inputs."""
        return self.run(primals, self.inputs)

    def pack(self, tensors: Sequence[Tensor]) -> Any:
        """Return results as the user gave what they belong to: a tensor, a tuple, or a dict by name."""
        tensors = [detach_if_grad_disabled(each) for each in tensors]
        if self.names is not None:
            return dict(zip(self.names, tensors, strict=True))
        return tensors[0] if len(tensors) == 1 else tuple(tensors)

    def disable_autocast(self) -> AbstractContextManager[object]:
        """Until the end of the block autocast is off, for the backward too."""
        return autocast_disabled(self.primals[0].device)


def detach_if_grad_disabled(tensor: Tensor) -> Tensor:
    """Return the tensor, without a graph where gradients are off (within a function they are on, so that it can be left)."""
    return tensor if torch.is_grad_enabled() else tensor.detach()


def load_forward_mode_rules() -> None:
    """Import torch's rules of forward mode, which it does late and with a warning about its own use of `torch.jit`."""
    if "torch._decomp.decompositions_for_jvp" not in sys.modules:
        with warnings.catch_warnings():
            for category in (DeprecationWarning, FutureWarning):  # the latter from torch 2.14 on
                warnings.simplefilter("ignore", category)
            import_module("torch._decomp.decompositions_for_jvp")


def _without_side_effects(
    function: object,
    run: Callable[[tuple[Tensor, ...], tuple[Any, ...]], Any],
    device: torch.device,
    purpose: str | None,
) -> Callable[[tuple[Tensor, ...], tuple[Any, ...]], Tensor]:
    """Return `run` without side effects; what it copies is copied inside it, where a transform can follow."""

    def run_without_side_effects(primals: tuple[Tensor, ...], inputs: tuple[Any, ...]) -> Tensor:
        with torch.enable_grad(), preserve_modules_while_deriving(function, device, purpose):
            output = run(primals, inputs)
        if not isinstance(output, Tensor) or not output.is_floating_point():
            what = output.dtype if isinstance(output, Tensor) else f"{a_type(output)}"
            raise LossError(
                f"The function returned {what}; a derivative is of one floating-point tensor. Pick it: lambda x: function(x)[0]."
            )
        return output

    return run_without_side_effects


def _module_to_call_functionally(function: object) -> nn.Module:
    """Return the module that takes other parameters in each call."""
    module = as_module(function, "A derivative with respect to parameters")
    if isinstance(module, nn.DataParallel):
        module = module.module
    if isinstance(module, torch.jit.ScriptModule):
        raise OptionError(
            f"A scripted module ({module.original_name}) can't be called with other parameters. Give the module it was made of."
        )
    return module


def _copy_tensor(value: Any) -> Any:
    """Return a copy of a tensor: a function that works in place must do so on its own, in each of the calls."""
    return value.clone() if isinstance(value, Tensor) else value


def _check_inputs(inputs: tuple[Any, ...]) -> None:
    if not inputs:
        raise LossError("There are no inputs to differentiate with respect to; give at least one tensor.")
    for number, value in enumerate(inputs):
        check_differentiable(f"Input {number} is", value, _INSTEAD, complex_too=False)


def derivative_parameters(module: nn.Module, patterns: Patterns) -> dict[str, Tensor]:
    """Return the parameters that the patterns name, a tied one once, in the order of the module."""
    asked = [patterns] if isinstance(patterns, str) else patterns
    if not isinstance(asked, Sequence) or not asked or not all(isinstance(each, str) for each in asked):
        raise OptionError(f'parameters={patterns!r} names none; write names, patterns, or "*" for all.')
    parameters = dict(module.named_parameters(remove_duplicate=False))
    names = {
        name
        for pattern in asked
        for name in match_layer_names_with_children(pattern, parameters, "parameter")
    }
    chosen: dict[Tensor, str] = {}
    for name, parameter in parameters.items():
        if name in names:
            chosen.setdefault(parameter, name)
    return {name: parameter for parameter, name in chosen.items()}
