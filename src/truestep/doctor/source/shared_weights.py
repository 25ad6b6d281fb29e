# SPDX-License-Identifier: Apache-2.0
"""What keeps a model's parameters themselves, and not copies of them: a dict or a list of them, and a shallow copy of either."""

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted_name

GIVING_WEIGHTS = ("state_dict", "named_parameters", "parameters")
_DICTS = ("dict", "OrderedDict", "collections.OrderedDict")
_LISTS = ("list", "tuple")
_SAME_MEMORY = ("data", "detach")  # of a tensor, another one that lies where it lies


class KeptWeights(NamedTuple):
    """A name that keeps weights as they are."""

    name: str
    node: ast.expr
    """What gives them: `net.state_dict()`, or `net`."""
    model: ast.expr


def kept_weights(module: SourceModule) -> Iterator[KeptWeights]:
    """Yield the names that keep what `net.state_dict()` or `net.parameters()` gives, or the model, be it in a tuple or a dict."""
    calls = {id(each): each for each in module.method_calls(*GIVING_WEIGHTS)}
    for statement in module.all(ast.Assign):
        for left, right in _targets_with_values(statement):
            name = dotted_name(left.value if isinstance(left, ast.Subscript) else left)
            if name is None:
                continue
            for node in _weights_held(right):
                if id(node) in calls and isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                    yield KeptWeights(name, node, node.func.value)
                    break
                if isinstance(node, ast.Name | ast.Attribute) and _is_certain_model(module, node):
                    yield KeptWeights(name, node, node)


def _is_certain_model(module: SourceModule, node: ast.expr) -> bool:
    """Tell what is a model for certain, and not by its name alone."""
    inner = _strip_module(node)
    return module.kind(inner) in ("module", "ddp") and not module.kinds.is_guess(inner)


def kind_of_owner(module: SourceModule, model: ast.expr) -> str | None:
    """Return what has the weights; `net.module` of a handle, or of a wrapper, is what that was made of."""
    return module.kind(model) or module.kind(_strip_module(model))


def _strip_module(node: ast.expr) -> ast.expr:
    return node.value if isinstance(node, ast.Attribute) and node.attr == "module" else node


def _targets_with_values(statement: ast.Assign) -> list[tuple[ast.expr, ast.expr]]:
    if len(statement.targets) != 1:
        return []
    target = statement.targets[0]
    if isinstance(target, ast.Tuple) and isinstance(statement.value, ast.Tuple):
        return list(zip(target.elts, statement.value.elts, strict=False))
    return [(target, statement.value)]


def _weights_held(value: ast.expr) -> Iterator[ast.expr]:
    """Yield what a value keeps as it is: `{"model": net.state_dict()}`, `dict(model=...)`, `dict(net.state_dict())`."""
    yield value
    parts: list[ast.expr] = []
    match value:
        case ast.Dict():
            parts = value.values
        case ast.Tuple() | ast.List():
            parts = value.elts
        case ast.Call(func=ast.Name(id="dict"), args=[]):
            parts = [word.value for word in value.keywords]
        case ast.Call(args=[given], keywords=[]):
            parts = [given] if _is_shallow_copy(dotted_name(value.func), given) else []
        case ast.Call(func=ast.Attribute(value=inner, attr="copy"), args=[]):
            parts = [inner] if _called_method_name(inner) == "state_dict" else []
        case ast.DictComp(key=_, value=kept, generators=[ast.comprehension(ifs=[]) as each]):
            parts = _iterated_weights(each, kept, "items", "named_parameters")
        case ast.ListComp(elt=kept, generators=[ast.comprehension(ifs=[]) as each]):
            parts = _iterated_weights(each, kept, "values", "parameters")
    for part in parts:
        yield from _weights_held(part)


def _is_shallow_copy(function: str | None, given: ast.expr) -> bool:
    """Tell a shallow copy; what is listed of a dict is its keys."""
    method = _called_method_name(given)
    if function == "copy.copy":
        return method == "state_dict" or isinstance(given, ast.Name | ast.Attribute)
    of_dict, of_list = ("state_dict", "named_parameters"), ("parameters", "named_parameters")
    return (function in _DICTS and method in of_dict) or (function in _LISTS and method in of_list)


def _iterated_weights(each: ast.comprehension, kept: ast.expr, of_dict: str, own: str) -> list[ast.expr]:
    """Return what is gone through where what is kept of it lies in the same memory."""
    while isinstance(kept, ast.Attribute) or _called_method_name(kept) is not None:
        part = kept.func if isinstance(kept, ast.Call) else kept
        assert isinstance(part, ast.Attribute)
        if part.attr not in _SAME_MEMORY:
            return []
        kept = part.value
    last = each.target.elts[-1] if isinstance(each.target, ast.Tuple) else each.target
    if not isinstance(kept, ast.Name) or not isinstance(last, ast.Name) or kept.id != last.id:
        return []
    match each.iter:
        case ast.Call(func=ast.Attribute(value=inner, attr=attr)) if attr == of_dict:
            return [inner] if _called_method_name(inner) == "state_dict" else []
    return [each.iter] if _called_method_name(each.iter) == own else []


def _called_method_name(node: ast.expr) -> str | None:
    match node:
        case ast.Call(func=ast.Attribute(attr=name)):
            return name
    return None
