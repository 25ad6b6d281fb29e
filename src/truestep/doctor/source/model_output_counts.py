# SPDX-License-Identifier: Apache-2.0
"""How many outputs a model has, by its last layer with weights."""

import ast

from truestep.doctor.library.operations import operations
from truestep.doctor.source.arguments import argument_for
from truestep.doctor.source.classes import MAX_DEPTH
from truestep.doctor.source.integer_values import whole_number
from truestep.doctor.source.memoized_walk import asked_once, walk_each_once
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import common_answer, method_of
from truestep.doctor.source.value_origins import (
    argument,
    function_name_of_layer,
    layers_behind,
    resolve_expression,
    value_sources,
)

_WIDTH = {"torch.nn.Linear": (1, "out_features"), "torch.nn.LazyLinear": (0, "out_features")}
_KEEPING = operations(shape="same")
_MOVES_AXES = operations(shape="other turned")
_HEADS = ("fc", "head", "classifier")  # of torchvision's models, replaced for another number of classes


@asked_once(False)
def is_softmax_already_named(module: SourceModule, node: ast.expr, depth: int = 0) -> bool:
    """Tell whether a softmax over what a model gives comes first: where that is wrong, it is named there."""
    calls = [each for each, _ in value_sources(module, node) if isinstance(each, ast.Call)]
    return any(is_softmax(module, each) or _ends_in_softmax(module, each, depth) for each in calls)


def is_softmax(module: SourceModule, call: ast.Call) -> bool:
    """Tell `F.softmax(x, 1)`, `x.log_softmax(1)` and a layer that does it."""
    name = module.qualify(call.func) or (method_of(call))
    layers = [each for each in layers_behind(module, call.func) if isinstance(each, ast.Call)]
    names = [name, *(module.qualify(each.func) or "" for each in layers)]
    return any(each.endswith(("softmax", "Softmax")) for each in names)


def _ends_in_softmax(module: SourceModule, call: ast.Call, depth: int) -> bool:
    for layer in layers_behind(module, call.func):
        if not isinstance(layer, ast.Call):
            continue
        last = layer.args[-1] if layer.args else None
        if module.qualify(layer.func) == "torch.nn.Sequential" and isinstance(last, ast.Call):
            return (module.qualify(last.func) or "").endswith("Softmax")
        owner = module.classes.of(layer)
        forward = module.classes.method(owner, "forward")
        if forward is not None:
            given = module.functions.results(forward)
            return any(is_softmax_already_named(module, each, depth + 1) for each in given)
    return False


@asked_once(None)
def num_outputs(module: SourceModule, node: ast.expr, depth: int = 0) -> int | None:
    """Return the width of a tensor that a model gives, where every way to it shows the same."""
    found: set[int | None] = set()
    for value, place in value_sources(module, node):
        if value is not None and _is_reshaped(module, node, value):
            return None
        found.add(
            _num_outputs_of_call(module, value, depth) if isinstance(value, ast.Call) and not place else None
        )
    return found.pop() if len(found) == 1 else None


def _is_reshaped(module: SourceModule, node: ast.expr, value: ast.expr) -> bool:
    """Tell whether axes are moved or dropped between a call and the value that comes from it."""

    def values_behind(each: ast.expr) -> list[ast.expr]:
        inner = _origin_before_reshapes(each, value)
        given = module.definitions(inner) if inner is not None and inner is not value else []
        return [made for made in given if made is not None]

    return any(_origin_before_reshapes(each, value) is None for each in walk_each_once([node], values_behind))


def _origin_before_reshapes(node: ast.expr, value: ast.expr) -> ast.expr | None:
    """Return what methods that keep the axes were called on, as far back as a value; None where one moves or drops them."""
    while node is not value:
        if isinstance(node, ast.Subscript):
            return None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in _MOVES_AXES:
                return None
            node = node.func.value
        elif isinstance(node, ast.Attribute) and node.attr == "data":
            node = node.value
        else:
            break
    return node


def _num_outputs_of_call(module: SourceModule, call: ast.Call, depth: int) -> int | None:
    name = module.qualify(call.func) or ""
    if name.startswith(("torch.nn.functional.", "torch.")) and name.rpartition(".")[2] in _KEEPING:
        return num_outputs(module, call.args[0], depth + 1) if call.args else None
    if not name and isinstance(call.func, ast.Attribute) and call.func.attr in _KEEPING:
        return num_outputs(module, call.func.value, depth + 1)
    return common_answer(
        _num_outputs_of_layer(module, each, depth + 1) for each in layers_behind(module, call.func)
    )


def _num_outputs_of_layer(module: SourceModule, layer: ast.expr | None, depth: int) -> int | None:
    if not isinstance(layer, ast.Call) or depth > MAX_DEPTH:
        return None
    name = module.qualify(layer.func) or ""
    if name in _WIDTH:
        return whole_number(module, argument(layer, *_WIDTH[name]))
    if name == "torch.nn.Sequential" and not any(isinstance(each, ast.Starred) for each in layer.args):
        return _num_outputs_of_last(module, layer.args, depth)
    if name.startswith("torchvision.models."):
        return _num_outputs_of_head(module, layer, depth)
    if (handed := _layer_given_back(module, layer)) is not None:
        return _num_outputs_of_layer(module, handed, depth + 1)
    owner = module.classes.of(layer)
    forward = module.classes.method(owner, "forward")
    return common_answer(num_outputs(module, each, depth + 1) for each in module.functions.results(forward))


def _layer_given_back(module: SourceModule, call: ast.Call) -> ast.expr | None:
    """Return the layer that a function of the program is given, if that is what it gives back: `initialized(nn.Linear(8, 1))`."""
    function = module.functions.target(call)
    results = module.functions.results(function)
    names = [each for each in results if isinstance(each, ast.Name)]
    is_one = len(names) == len(results) and len({each.id for each in names}) == 1
    bound = [made.node for each in names for made in module.resolver.reaching(each)] if is_one else []
    name = names[0].id if bound and all(isinstance(each, ast.arg) for each in bound) else ""
    handed = argument_for(function, call, name) if function is not None and name else None
    return resolve_expression(module, handed)


def _num_outputs_of_last(module: SourceModule, layers: list[ast.expr], depth: int) -> int | None:
    """Go back from the end past what keeps the width."""
    for layer in reversed(layers):
        each = resolve_expression(module, layer)
        name = (module.qualify(each.func) or "") if isinstance(each, ast.Call) else ""
        if not (name.startswith("torch.nn.") and function_name_of_layer(name) in _KEEPING):
            return _num_outputs_of_layer(module, each, depth + 1)
    return None


def _num_outputs_of_head(module: SourceModule, model: ast.Call, depth: int) -> int | None:
    """Return the width of `net.fc = nn.Linear(...)`, if one head is set and one such model is made."""
    made = [call for name, call in module.calls_matching("torchvision.models.")]
    heads = [
        node.value
        for node in module.all(ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Attribute)
        and target.attr in _HEADS
        and not ast.unparse(target).startswith("self.")
    ]
    return (
        _num_outputs_of_layer(module, heads[0], depth + 1)
        if len(heads) == len(made) == 1 and made[0] is model
        else None
    )
