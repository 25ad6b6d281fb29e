# SPDX-License-Identifier: Apache-2.0
"""How many axes a tensor has, where every way to it says the same."""

import ast
import re

from truestep.doctor.source.batches import cut_from, sizes_of
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.once import asked_once
from truestep.doctor.source.shapes import KEEP_SHAPE
from truestep.doctor.source.values import constant, value_origins

_BY_LAYER = re.compile(r"^torch\.nn\.\w*(?:Conv|Norm|Pool)\w*?([123])d$")


@asked_once(None)
def num_axes(module: SourceModule, node: ast.expr | None, depth: int = 0) -> int | None:
    """Return the number of axes of a tensor; None where it can't be told."""
    match node:
        case ast.Name() | ast.Attribute():
            return _by_name(module, node, depth)
        case ast.UnaryOp():
            return num_axes(module, node.operand, depth + 1)
        case ast.BinOp():
            sides = [each for each in (node.left, node.right) if constant(each) is None]
            found = [num_axes(module, each, depth + 1) for each in sides]
            known = [each for each in found if each is not None]
            return max(known) if known and len(known) == len(found) else None
        case ast.Call():
            return _of_call(module, node, depth)
    return None


def _by_name(module: SourceModule, node: ast.Name | ast.Attribute, depth: int) -> int | None:
    if isinstance(node, ast.Name):
        if (taken := _by_its_shape(module, node)) is not None:
            return taken
        loops = [each for each in module.names.bindings(node) if each.how == "for"]
        if loops:
            found = {num_axes(module, cut_from(module, each), depth + 1) for each in loops}
            return found.pop() if len(found) == 1 else None
    values = {num_axes(module, each, depth + 1) for each in module.definitions(node)}
    return values.pop() if len(values) == 1 else None


def _by_its_shape(module: SourceModule, name: ast.Name) -> int | None:
    """`n, channels, height, width = x.shape`, in the same function."""
    for node in module.inside(module.scope(name), ast.Assign):
        target, value = node.targets[0], node.value
        if isinstance(value, ast.Call) and not value.args and isinstance(value.func, ast.Attribute):
            value = value.func if value.func.attr == "size" else value
        asked = isinstance(value, ast.Attribute) and value.attr in ("shape", "size")
        if asked and isinstance(value.value, ast.Name) and value.value.id == name.id:  # type: ignore[attr-defined]
            whole = isinstance(target, ast.Tuple) and not any(isinstance(e, ast.Starred) for e in target.elts)
            if whole and module.scope(node) is module.scope(name):
                return len(target.elts)  # type: ignore[attr-defined]
    return None


def _of_call(module: SourceModule, call: ast.Call, depth: int) -> int | None:
    sizes = sizes_of(module, call)
    if sizes is not None:
        return len(sizes)
    name = module.qualify(call.func) or ""
    if name.startswith("torch.") and name.endswith("_like") and call.args:
        return num_axes(module, call.args[0], depth + 1)
    if isinstance(call.func, ast.Attribute) and not name:
        return _of_method(module, call, call.func, depth)
    layers = [each for each in value_origins(module, call.func) if isinstance(each, ast.Call)]
    found = {_BY_LAYER.match(module.qualify(each.func) or "") for each in layers}
    only = found.pop() if len(found) == 1 else None
    return int(only[1]) + 2 if only is not None else None


def _of_method(module: SourceModule, call: ast.Call, method: ast.Attribute, depth: int) -> int | None:
    args = call.args
    if len(args) == 1 and isinstance(args[0], ast.Tuple | ast.List):
        args = args[0].elts
    if any(isinstance(each, ast.Starred) for each in args):
        return None
    match method.attr:
        case "view" | "reshape" | "permute" | "expand" | "repeat":
            whole = len(args) > 1 or isinstance(constant(args[0]) if args else None, int)
            return len(args) if whole or args is not call.args else None
        case "expand_as" | "view_as" | "reshape_as" | "type_as" if args:
            return num_axes(module, args[0], depth + 1)
        case "flatten":
            return 2 if constant(args[0]) == 1 and len(args) == 1 else None if args else 1
    inner = num_axes(module, method.value, depth + 1)
    if inner is None:
        return None
    if method.attr == "unsqueeze":
        return inner + 1
    if method.attr == "unflatten" and len(call.args) == 2 and isinstance(call.args[1], ast.Tuple | ast.List):
        return inner + len(call.args[1].elts) - 1
    return inner if method.attr in KEEP_SHAPE or method.attr == "requires_grad_" else None
