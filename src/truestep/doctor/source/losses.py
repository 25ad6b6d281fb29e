# SPDX-License-Identifier: Apache-2.0
"""Where losses are computed: the functions, the layers, and names that hold a layer."""

import ast
from collections.abc import Iterator

from truestep.doctor.library.losses import LOSSES, loss_function_names
from truestep.doctor.library.operations import CUTS
from truestep.doctor.source.memoized_walk import answered_once
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.value_origins import argument, function_name_of_layer, literal, value_origins

_OF_LAYER = {each.layer: each.function for each in LOSSES}  # the layer's name is not always its function's

# what gives back no part of the graph, or nothing that a loss could be made of
_WITHOUT_GRAPH = CUTS | {"backward", "append", "update", "extend"}
_OLD_REDUCTIONS = {"reduce": "none", "size_average": "sum"}  # what the old options mean when they are False


def loss_calls(module: SourceModule, *wanted: str) -> Iterator[ast.Call]:
    """Yield the calls that compute one of these losses (any, if none is named)."""
    for function in wanted or loss_function_names():
        yield from module.calls(f"torch.nn.functional.{function}")
    for call, function_name in _loss_layer_calls(module):
        if not wanted or function_name in wanted:
            yield call


@answered_once
def _loss_layer_calls(module: SourceModule) -> list[tuple[ast.Call, str | None]]:
    """Return the calls of layers that compute losses, each with the name of its function."""
    layers = [(call, loss_layer_constructor(module, call)) for call in module.all(ast.Call)]
    return [(call, loss_function_name(module, layer)) for call, layer in layers if layer is not None]


@answered_once
def loss_layer_constructor(module: SourceModule, call: ast.Call) -> ast.Call | None:
    """Return `nn.SomeLoss(...)` for a call `criterion(...)`, if all that criterion can be is one such."""
    if not call.args or (isinstance(call.func, ast.Attribute) and call.func.attr in ("to", "cuda")):
        return None
    found = (
        list(value_origins(module, call.func))
        if isinstance(call.func, (ast.Name, ast.Attribute, ast.Subscript))
        else [call.func]
    )
    calls = [each for each in found if isinstance(each, ast.Call)]
    same = {loss_function_name(module, each) for each in calls}
    return calls[0] if len(calls) == len(found) and len(same) == 1 and None not in same else None


def loss_function_name(module: SourceModule, constructor: ast.Call) -> str | None:
    """Return cross_entropy for nn.CrossEntropyLoss(...)."""
    name = module.qualify(constructor.func) or ""
    if not (name.startswith("torch.nn.") and name.endswith("Loss")):
        return None
    layer = name.removeprefix("torch.nn.")
    return _OF_LAYER.get(layer) or function_name_of_layer(name)


def loss_reduction(module: SourceModule, call: ast.Call) -> str | None:
    """Return the reduction that is written for a loss, in the call or in its layer's constructor."""
    source = loss_layer_constructor(module, call) or call
    value = literal(module, argument(source, None, "reduction"))
    for option, means in _OLD_REDUCTIONS.items():  # these go before it
        if literal(module, argument(source, None, option)) is False:
            return means
    return value if isinstance(value, str) else None


def classifier_outputs(module: SourceModule) -> Iterator[tuple[ast.Call, ast.Call]]:
    """Yield (loss call, the call that made its input) for the losses over classes."""
    for call in loss_calls(module, "cross_entropy", "nll_loss"):
        given = argument(call, 0, "input")
        for origin in value_origins(module, given) if given is not None else ():
            if isinstance(origin, ast.Call):
                yield call, origin


def loses_graph(value: ast.expr) -> bool:
    """Tell `loss.detach().cpu()`, `loss.item()`: what a chain of methods gives has no graph."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        if value.func.attr in _WITHOUT_GRAPH:
            return True
        value = value.func.value
    return False
