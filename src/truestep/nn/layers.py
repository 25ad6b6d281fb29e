# SPDX-License-Identifier: Apache-2.0
"""Choosing layers of a model by kind or by name, and describing them in messages."""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any

from torch import nn

from truestep.core.errors import OptionError, nearest

NORMS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)

Selector = type[nn.Module] | str
Layers = Selector | Iterable[Selector]


def check_model(model: Any) -> nn.Module:
    """Return `model` if it is a module; a learner or something else is refused with what to give instead."""
    if isinstance(model, nn.Module):
        return model
    inner = getattr(model, "module", None)
    instead = "give its module: net.module" if isinstance(inner, nn.Module) else "give an nn.Module"
    raise OptionError(f"A model is expected, got {type(model).__name__}; {instead}.")


def selectors(layers: Layers) -> tuple[Selector, ...]:
    """Return what was given for `layers` as a tuple of kinds and name patterns."""
    one = isinstance(layers, str | type | nn.Module) or not isinstance(layers, Iterable)
    chosen: tuple[Any, ...] = (layers,) if one else tuple(layers)  # type: ignore[arg-type]
    wrong = [each for each in chosen if not isinstance(each, str) and not _is_kind(each)]
    if wrong or not chosen:
        raise OptionError(
            f"Layers are chosen by kind (nn.Linear) or by a pattern of their names ('head.*'); got "
            f"{', '.join(map(repr, wrong)) or 'none at all'}."
        )
    return chosen


def _is_kind(each: object) -> bool:
    return isinstance(each, type) and issubclass(each, nn.Module)


def matches(selector: Selector, name: str, module: nn.Module) -> bool:
    """Tell whether a kind or a name pattern chooses this layer; the root's name is the empty string."""
    return fnmatchcase(name, selector) if isinstance(selector, str) else isinstance(module, selector)


def refuse_unmatched(model: nn.Module, chosen: Iterable[Selector]) -> None:
    """Raise an OptionError for a kind or pattern that no layer of the model matches, listing what there is."""
    modules = dict(model.named_modules())
    for selector in chosen:
        if any(matches(selector, name, module) for name, module in modules.items()):
            continue
        what = repr(selector) if isinstance(selector, str) else selector.__name__
        known = modules if isinstance(selector, str) else {type(each).__name__ for each in modules.values()}
        listed = nearest(what.strip("'"), [name for name in known if name])
        raise OptionError(f"{what} matches no layer of {type(model).__name__}. {listed}")


def refuse_lazy(model: nn.Module) -> None:
    """Raise an OptionError for layers that don't know their shape yet."""
    lazy = [
        name
        for name, module in model.named_modules()
        for tensor in [*module._parameters.values(), *module._buffers.values()]
        if isinstance(tensor, (nn.parameter.UninitializedParameter, nn.parameter.UninitializedBuffer))
    ]
    if lazy:
        raise OptionError(
            f"{', '.join(name or type(model).__name__ for name in dict.fromkeys(lazy))}: no shape yet; lazy layers learn it from "
            "their first input. Call the model once on an example, under torch.no_grad(), and come back then."
        )


def full_name(layer: str, tensor: str) -> str:
    """Return the name of a tensor within the model."""
    return f"{layer}.{tensor}" if layer else tensor
