# SPDX-License-Identifier: Apache-2.0
"""A model with vanilla dropout as one with inverted dropout, and back: the factor goes into the next weights."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import fx, nn
from torch.nn.utils import parametrize

from truestep.core.errors import OptionError
from truestep.core.results import Result
from truestep.nn.dropout.vanilla import VanillaDropout
from truestep.nn.layers import check_model, refuse_lazy
from truestep.nn.sizes.preceding import trace
from truestep.nn.swapping.swap import swap_activation

if TYPE_CHECKING:
    from rich.console import RenderableType

_PRODUCTS = (nn.Linear, nn.modules.conv._ConvNd)
_PASSES = (nn.Flatten, nn.Identity)


@dataclass(frozen=True, kw_only=True)
class DropoutConversion(Result):
    """The dropout layers that were replaced, and the factor on each weight that takes their place."""

    to: str
    dropouts: tuple[str, ...]
    factors: Mapping[str, float]

    def __rich__(self) -> "RenderableType":
        from rich.table import Table

        table = Table(title=f"dropout layers, now {self.to}: {len(self.dropouts)}", title_justify="left")
        table.add_column("weight")
        table.add_column("times")
        for name, factor in self.factors.items():
            table.add_row(f"{name}.weight", f"{factor:.6g}")
        return table


def convert_dropout(model: nn.Module, *, to: str = "inverted") -> DropoutConversion:
    """Turn vanilla dropout into torch's inverted one, or back, in place, with the same outputs in both modes.

    Vanilla numbers are 1 − p times the inverted ones, so the weights of the layers that take them are multiplied by 1 − p
    ("inverted") or divided by it ("vanilla"). Outputs agree up to rounding, in evaluation and, for the same mask, in
    training. Gradients of those weights change by the inverse factor: go on training with the same kind, convert to serve.

    Args:
        model: changed in place; its forward must be one that torch.fx can trace.
        to: "inverted" (each `VanillaDropout` becomes `nn.Dropout`) or "vanilla".

    Raises:
        OptionError: before anything is changed: no such dropout; one whose output goes elsewhere than into linear or
            convolutional layers; weights that are shared or parametrized; a forward that can't be traced.
    """
    check_model(model)
    refuse_lazy(model)
    if to not in {"inverted", "vanilla"}:
        raise OptionError(f"to={to!r}: dropout is converted to 'inverted' or to 'vanilla'.")
    old: type[nn.Module] = VanillaDropout if to == "inverted" else nn.Dropout
    new: type[nn.Module] = nn.Dropout if to == "inverted" else VanillaDropout
    taking = _layers_after(model, old)
    factors = {name: (1 - p if to == "inverted" else 1 / (1 - p)) for name, p in taking.items()}
    _refuse_held_elsewhere(model, factors)
    dropouts = swap_activation(model, old, lambda layer: new(layer.p)).swapped
    with torch.no_grad():
        for name, factor in factors.items():
            model.get_submodule(name).weight.mul_(factor)  # type: ignore[operator]
    return DropoutConversion(to=to, dropouts=dropouts, factors=factors)


def _layers_after(model: nn.Module, old: type[nn.Module]) -> dict[str, float]:
    """Return the layers that take the output of a dropout, with its rate; each must take that alone."""
    graph = trace(model)
    if graph is None:
        raise OptionError(
            f"The forward of {type(model).__name__} can't be traced by torch.fx, so where its dropout goes is unknown. Scale the "
            "weights after it yourself: by 1 - p from vanilla to inverted."
        )
    modules = dict(model.named_modules(remove_duplicate=False))
    nodes = [node for node in graph.nodes if node.op == "call_module"]
    dropouts = [node for node in nodes if isinstance(modules[str(node.target)], old)]
    if not dropouts:
        raise OptionError(f"The forward of {type(model).__name__} calls no {old.__name__} layer.")
    called = {modules[str(node.target)] for node in dropouts}
    inside = [
        name for name, module in model.named_modules() if isinstance(module, old) and module not in called
    ]
    if inside:
        raise OptionError(
            f"Where the output of {', '.join(inside)} goes can't be read: the forward never calls it, or only "
            "inside a layer of torch."
        )
    rates: dict[str, set[float | None]] = {}
    for node in nodes:
        if isinstance(modules[str(node.target)], _PRODUCTS):
            rates.setdefault(str(node.target), set()).add(_rate_before(node, modules, old))
    for node in dropouts:
        _check_users(node, modules, rates)
    return {name: rate for name, held in rates.items() for rate in held if rate is not None}


def _check_users(
    node: fx.Node, modules: Mapping[str, nn.Module], rates: Mapping[str, set[float | None]]
) -> None:
    """Raise an OptionError unless layers that take this dropout's output alone can take up its factor."""
    rate: Any = modules[str(node.target)].p
    if rate == 1:
        raise OptionError(f"{node.target} drops everything (p=1); no weight can take that up.")
    wrong = [
        str(user.target)
        for user in _users(node, modules)
        if user.op != "call_module" or rates.get(str(user.target)) != {rate}
    ]
    if wrong:
        raise OptionError(
            f"The output of {node.target} goes to {', '.join(wrong)}, which is no linear or convolutional layer that takes it "
            "alone, so no weight can take up its factor."
        )


def _rate_before(node: fx.Node, modules: Mapping[str, nn.Module], old: type[nn.Module]) -> float | None:
    source = node.all_input_nodes[0] if node.all_input_nodes else None
    while source is not None and source.op == "call_module":
        module = modules[str(source.target)]
        if isinstance(module, old):
            return float(module.p)  # type: ignore[arg-type]
        if not isinstance(module, _PASSES):
            return None
        source = source.all_input_nodes[0]
    return None


def _users(node: fx.Node, modules: Mapping[str, nn.Module]) -> Iterator[fx.Node]:
    for user in node.users:
        if user.op == "call_module" and isinstance(modules[str(user.target)], _PASSES):
            yield from _users(user, modules)
        else:
            yield user


def _refuse_held_elsewhere(model: nn.Module, factors: Mapping[str, float]) -> None:
    holders: dict[int, list[str]] = {}
    for path, module in model.named_modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                holders.setdefault(id(parameter), []).append(f"{path}.{name}" if path else name)
    for name in factors:
        layer = model.get_submodule(name)
        if parametrize.is_parametrized(layer, "weight"):
            raise OptionError(
                f"{name}.weight is computed (weight norm, say) and can't be scaled; remove that first."
            )
        shared = [other for other in holders[id(layer.weight)] if other != f"{name}.weight"]
        if shared:
            raise OptionError(
                f"{name}.weight is shared with {', '.join(shared)}, where the factor does not belong."
            )
