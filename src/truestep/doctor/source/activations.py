# SPDX-License-Identifier: Apache-2.0
"""The activation between a model and its loss, and the code without it."""

import ast

from truestep.doctor.source.memoized_walk import asked_once
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted_name
from truestep.doctor.source.rewriting import Edits, SourceRewriteError, node_text, replace_node
from truestep.doctor.source.value_origins import Position, layers_behind, value_sources


def activation_call(module: SourceModule, loss: ast.Call, given: ast.expr | None) -> ast.Call:
    """Return the call that made a loss's input: written in it, or under a name that it alone reads."""
    if isinstance(given, ast.Name):
        made = module.definitions(given)
        reads = [each for each in module.reads(given.id) if module.scope(each) is module.scope(given)]
        if len(made) != 1 or not all(loss in module.ancestors(each) for each in reads):
            raise SourceRewriteError
        given = made[0]
    if not isinstance(given, ast.Call):
        raise SourceRewriteError
    return given


def without_activation(module: SourceModule, loss: ast.Call, given: ast.expr | None) -> Edits:
    """Put what goes into the activation in its place."""
    made = activation_call(module, loss, given)
    last = (dotted_name(made.func) or ast.unparse(made.func)).rsplit(".", 1)[-1]
    if last not in ("softmax", "sigmoid"):
        raise SourceRewriteError
    free = (module.qualify(made.func) or "").startswith("torch.")
    inner = (made.args[0] if made.args else None) if free else getattr(made.func, "value", None)
    if inner is None:
        raise SourceRewriteError
    return [replace_node(module, made, node_text(module, inner))]


@asked_once(())
def last_operation_nodes(module: SourceModule, node: ast.expr, depth: int = 0) -> tuple[ast.expr, ...]:
    """Return where the operations that `last_operations` names are written: the calls, or the layers' constructors."""
    calls = [(each, position) for each, position in value_sources(module, node) if isinstance(each, ast.Call)]
    found = [
        made
        for each, position in calls
        for made in _last_operation_nodes_in_call(module, each, depth, position)
    ]
    return tuple(dict.fromkeys(found))


def _last_operation_nodes_in_call(
    module: SourceModule, call: ast.Call, depth: int, position: Position
) -> list[ast.expr]:
    if module.qualify(call.func):
        return [call]
    made = [each for each in layers_behind(module, call.func) if isinstance(each, ast.Call)]
    layers = [_last_layer(module, each) for each in made]
    known = [each for each in layers if each is not None]
    target = module.functions.applied(call)
    if known or target is None or isinstance(target, ast.Lambda):
        return known or [call]
    inner: list[ast.expr] = []
    for node in module.functions.returns(target):
        value, left = node.value, position
        while isinstance(value, ast.Tuple) and left and left[0] < len(value.elts):
            value, left = value.elts[left[0]], left[1:]
        inner += last_operation_nodes(module, value, depth + 1) if value is not None else []
    return inner


def _last_layer(module: SourceModule, layer: ast.Call) -> ast.expr | None:
    """Return the constructor of torch's layer that is applied last."""
    name = module.qualify(layer.func) or ""
    if name in ("torch.nn.Sequential",) and layer.args and isinstance(layer.args[-1], ast.Call):
        return _last_layer(module, layer.args[-1])
    return layer if name.startswith("torch.nn.") else None
