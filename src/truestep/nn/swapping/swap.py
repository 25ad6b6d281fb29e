# SPDX-License-Identifier: Apache-2.0
"""Swapping the activations of a model, in place."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from truestep.core.errors import OptionError
from truestep.core.results import Result
from truestep.nn.layers import check_model, refuse_unmatched
from truestep.nn.swapping.functional import functional_uses

if TYPE_CHECKING:
    from rich.console import RenderableType

Replacement = type[nn.Module] | Callable[[Any], nn.Module]


@dataclass(frozen=True, kw_only=True)
class ActivationSwap(Result):
    """The modules that were swapped, and the uses of the same activation as a function, which were not.

    `functional` has "Net.forward (net.py:12)" for each call and "layer.activation" for an attribute that holds the
    function; `unread` the classes that use it somewhere and whose source is not to be found.
    """

    swapped: tuple[str, ...]
    functional: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()

    def __rich__(self) -> "RenderableType":
        from rich.table import Table

        table = Table(title=f"activations swapped: {len(self.swapped)}", title_justify="left")
        table.add_column("where")
        table.add_column("what became of it")
        for names, fate in (
            (self.swapped, "swapped"),
            (self.functional, "a function: NOT swapped"),
            (self.unread, "source not found: look yourself"),
        ):
            for name in names:
                table.add_row(name, fate)
        return table


def swap_activation(
    model: nn.Module, old: type[nn.Module] | tuple[type[nn.Module], ...], new: Replacement
) -> ActivationSwap:
    """Put another activation in the place of each module of one kind, in place: `swap_activation(net, nn.ReLU, nn.SiLU)`.

    One module that stands in several places is replaced by one module. `inplace=` and the mode are kept where the new
    kind has them; a new one with parameters is brought to the model's device and type. Calls of the function
    (`F.relu` in a forward) can't be swapped: they are found by reading the code and listed in the result.

    Args:
        model: changed in place.
        old: a kind of module, or several.
        new: a kind, made with the old one's `inplace`, or a function of the old module: `lambda old: nn.LeakyReLU(0.1)`.

    Raises:
        OptionError: no such module and no such function; the model itself is one; hooks that would be lost.
    """
    check_model(model)
    kinds = old if isinstance(old, tuple) else (old,)
    _check_kinds(kinds, new)
    functional, unread = functional_uses(model, kinds)
    found = {module for module in model.modules() if isinstance(module, kinds)}
    if not found and not functional and not unread:
        for kind in kinds:
            refuse_unmatched(model, [kind])
    _refuse(model, found, kinds)
    swapped = _replace(model, {module: _made(new, module, model) for module in found})
    return ActivationSwap(swapped=swapped, functional=functional, unread=unread)


def _check_kinds(kinds: tuple[Any, ...], new: object) -> None:
    if not kinds or not all(isinstance(kind, type) and issubclass(kind, nn.Module) for kind in kinds):
        raise OptionError(f"old={kinds!r}: give a kind of module, nn.ReLU, or several in a tuple.")
    if isinstance(new, nn.Module) or not callable(new):
        raise OptionError(
            f"new={new!r}: give a kind, nn.SiLU, or a function that makes a module for each old one: lambda old: nn.LeakyReLU(0.1)."
        )


def _refuse(model: nn.Module, found: set[nn.Module], kinds: tuple[type[nn.Module], ...]) -> None:
    if isinstance(model, kinds):
        raise OptionError(
            f"The model itself is a {type(model).__name__}: nothing holds it, so nothing can be put in its place. Make the new "
            "module instead."
        )
    hooked = [
        name
        for name, module in model.named_modules()
        if module in found and (module._forward_hooks or module._forward_pre_hooks or module._backward_hooks)
    ]
    if hooked:
        raise OptionError(
            f"{', '.join(hooked)} has hooks, which would be lost. Swap first, then register them."
        )


def _without_options(new: type[nn.Module]) -> nn.Module:
    needed = [
        name
        for name, parameter in inspect.signature(new).parameters.items()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if needed:
        raise OptionError(
            f"{new.__name__} needs {', '.join(needed)}: write lambda old: nn.{new.__name__}(...)."
        )
    return new()


def _from_old(new: Callable[[Any], nn.Module], old: nn.Module) -> nn.Module:
    try:
        return new(old)
    except TypeError as error:
        if getattr(new, "__module__", "") != "torch.nn.functional":
            raise
        raise OptionError(
            f"{new!r} is a function of tensors, and a module is needed: its kind is written nn.SiLU."
        ) from error


def _made(new: Replacement, old: nn.Module, model: nn.Module) -> nn.Module:
    keeps = getattr(old, "inplace", False)
    if isinstance(new, type):
        knows = "inplace" in inspect.signature(new).parameters
        made = new(inplace=True) if knows and keeps else _without_options(new)
    else:
        made = _from_old(new, old)
    if not isinstance(made, nn.Module):
        raise OptionError(
            f"{new!r} gave {type(made).__name__} for {old!r}; a module is needed: lambda old: nn.LeakyReLU(0.1)."
        )
    if keeps and getattr(made, "inplace", None) is False:
        made.inplace = True  # type: ignore[assignment]
    if made is old:
        return made
    like = next((each for each in model.parameters() if each.is_floating_point()), torch.empty(0))
    return made.to(like.device, like.dtype).train(old.training)


def _replace(model: nn.Module, made: dict[nn.Module, nn.Module]) -> tuple[str, ...]:
    names = [
        (path, name, child)
        for path, parent in model.named_modules()
        for name, child in parent._modules.items()
        if child in made
    ]
    swapped = []
    for path, name, child in names:
        parent = model.get_submodule(path)
        setattr(parent, name, made[child])
        # torch's fast path of evaluation computes a ReLU or GELU by this mark and never looks at the module again
        if hasattr(parent, "activation_relu_or_gelu") and name == "activation":
            parent.activation_relu_or_gelu = 0  # type: ignore[assignment]
        swapped.append(f"{path}.{name}" if path else name)
    return tuple(swapped)
