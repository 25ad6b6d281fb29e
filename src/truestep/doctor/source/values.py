# SPDX-License-Identifier: Apache-2.0
"""What a value was made by: literals, arguments, and the last operation on a tensor."""

import ast
import re
from collections.abc import Iterator
from typing import Any

from truestep.doctor.source.module import MAX_DEPTH, SourceModule

# what leaves the meaning of the numbers as it is: shapes, devices, types, graph
_TRANSPARENT = {
    "to", "cuda", "cpu", "float", "double", "half", "bfloat16", "type", "type_as", "numpy", "data",
    "contiguous", "view", "view_as", "reshape", "squeeze", "unsqueeze", "flatten", "permute", "transpose",
    "t", "detach", "clone", "requires_grad_", "expand",
}  # fmt: skip
_LAYERS = {"torch.nn.Sequential"}
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")  # BCE|With|Logits|Loss


def argument(call: ast.Call, position: int | None, keyword: str) -> ast.expr | None:
    """Return the argument of a call that stands at a position or under a keyword."""
    for word in call.keywords:
        if word.arg == keyword:
            return word.value
    if (
        position is not None
        and position < len(call.args)
        and not any(isinstance(a, ast.Starred) for a in call.args)
    ):
        return call.args[position]
    return None


def forwards_all(call: ast.Call) -> bool:
    """Tell whether the call spreads arguments that can't be seen (`*args`, `**options`)."""
    return any(word.arg is None for word in call.keywords) or any(
        isinstance(a, ast.Starred) for a in call.args
    )


def constant(node: ast.expr | None) -> Any:
    """Return a literal's value, or None; a negative number counts as a literal."""
    if isinstance(node, ast.Constant):
        return node.value
    if (
        isinstance(node, ast.UnaryOp)
        and isinstance(node.op, ast.USub)
        and isinstance(node.operand, ast.Constant)
    ):
        value = node.operand.value
        return -value if isinstance(value, int | float) else None
    return None


def is_call_of(module: SourceModule, node: ast.AST | None, *names: str) -> bool:
    """Tell whether a node is a call of one of these full names."""
    return isinstance(node, ast.Call) and module.qualify(node.func) in names


def origins(module: SourceModule, node: ast.expr, depth: int = 0) -> Iterator[ast.expr | None]:
    """Yield the expressions that a value may come from, through names and what does not change it."""
    node = unwrapped(node)
    if depth > MAX_DEPTH:
        yield None
        return
    definitions = module.definitions(node) if isinstance(node, ast.Name | ast.Attribute | ast.IfExp) else []
    if not definitions:
        yield None if isinstance(node, ast.Name) else node
    for each in definitions:
        if each is None:
            yield None
        else:
            yield from origins(module, each, depth + 1)


def unwrapped(node: ast.expr) -> ast.expr:
    """Strip `.to(...)`, `.view(...)`, `[..., 0]` and the like."""
    while True:
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in _TRANSPARENT
        ):
            node = node.func.value
        elif isinstance(node, ast.Subscript) or (isinstance(node, ast.Attribute) and node.attr == "data"):
            node = node.value
        else:
            return node


def last_operations(module: SourceModule, node: ast.expr, depth: int = 0) -> set[str | None]:
    """Return the names of the operations that may have made a tensor last; None where one is unknown.

    A name is the last part of the operation's: `softmax` for `F.softmax(x)`, `x.softmax(1)`,
    `nn.Softmax()(x)`, and for a module of this file whose forward ends so.
    """
    found: set[str | None] = set()
    if depth > MAX_DEPTH:
        return {None}
    for origin in origins(module, node):
        if isinstance(origin, ast.Call):
            found |= _operation(module, origin, depth)
        elif isinstance(origin, ast.BinOp):
            found.add("arithmetic")
        else:
            found.add(None)
    return found


def _operation(module: SourceModule, call: ast.Call, depth: int) -> set[str | None]:
    qualified = module.qualify(call.func)
    if (qualified and qualified.startswith(("torch.nn.functional.", "torch.special."))) or (
        (qualified or "").count(".") == 1 and (qualified or "").startswith("torch.")
    ):
        return {(qualified or "").rsplit(".", 1)[-1]}
    layer = _layer(module, call.func, depth)
    if layer is not None:
        return layer
    owner = module.class_of(call.func)
    forward = module.method(owner, "forward") if owner is not None else None
    target = forward or module.target(call)
    if target is not None and not isinstance(target, ast.Lambda):
        return _returned(module, target, depth)
    if isinstance(call.func, ast.Attribute):
        return {call.func.attr}
    return {None}


def _returned(
    module: SourceModule, function: ast.FunctionDef | ast.AsyncFunctionDef, depth: int
) -> set[str | None]:
    found: set[str | None] = set()
    for node in module.returns(function):
        assert node.value is not None
        value = node.value.elts[0] if isinstance(node.value, ast.Tuple) and node.value.elts else node.value
        found |= last_operations(module, value, depth + 1)
    return found or {None}


def _layer(module: SourceModule, function: ast.expr, depth: int) -> set[str | None] | None:
    """Return the operation of a torch layer that is applied, e.g. of `nn.Sequential(..., nn.Softmax(1))`."""
    if isinstance(function, ast.Call):
        constructors: list[ast.expr | None] = [function]
    else:
        constructors = (
            list(origins(module, function)) if isinstance(function, ast.Name | ast.Attribute) else []
        )
    found: set[str | None] = set()
    for each in constructors:
        if not isinstance(each, ast.Call):
            return None
        inner = module.unwrapped(each)
        name = module.qualify((inner if isinstance(inner, ast.Call) else each).func) or ""
        if not name.startswith("torch.nn."):
            return None
        if name in _LAYERS and each.args and depth < MAX_DEPTH and not isinstance(each.args[-1], ast.Starred):
            found |= _layer(module, each.args[-1], depth + 1) or {None}
        else:
            found.add(name_of_layer(name))
    return found or None


def name_of_layer(qualified: str) -> str:
    """Turn torch.nn.LogSoftmax into log_softmax."""
    return _WORDS.sub("_", qualified.rsplit(".", 1)[-1]).lower()
