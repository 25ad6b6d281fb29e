# SPDX-License-Identifier: Apache-2.0
"""Numbers that a loop of epochs saves, and that it begins with after a resume: each a place plus a constant."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted
from truestep.doctor.source.once import each_once
from truestep.doctor.source.values import constant

_SAME = ("int", "max", "min")  # one of what they are given


@dataclass(frozen=True)
class KeyRead:
    """A number that is read under a key: which key, what is added to it, and where it is read."""

    key: str
    added: int
    node: ast.expr


def shifted(node: ast.expr) -> tuple[ast.expr, int]:
    """Return x and 2 of `x + 2`, and x and -1 of `x - 1`."""
    total = 0
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        right, left = constant(node.right), constant(node.left)
        if isinstance(right, int):
            total += right if isinstance(node.op, ast.Add) else -right
            node = node.left
        elif isinstance(left, int) and isinstance(node.op, ast.Add):
            total += left
            node = node.right
        else:
            break
    return node, total


def keys_behind(module: SourceModule, value: ast.expr) -> Iterator[KeyRead]:
    """Yield the keys under which a number may be read from a file, through names, attributes and calls."""
    added = dict[ast.expr, int]()  # what is added on the way to each

    def behind(node: ast.expr) -> list[ast.expr]:
        found = [shifted(each) for each in _one_step_back(module, node)] if _key(node) is None else []
        for each, more in found:
            added.setdefault(each, added[node] + more)
        return [each for each, _ in found]

    first, added_first = shifted(value)
    added[first] = added_first
    for node in each_once([first], behind):
        if (key := _key(node)) is not None:
            yield KeyRead(key, added[node], node)


def _key(node: ast.expr) -> str | None:
    """Return K of `c[K]`, `c.get(K)` and `c.pop(K)`."""
    if isinstance(node, ast.Subscript):
        found = constant(node.slice)
    elif (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("get", "pop")
    ):
        found = constant(node.args[0]) if node.args else None
    else:
        return None
    return found if isinstance(found, str) else None


def _one_step_back(module: SourceModule, node: ast.expr) -> list[ast.expr]:
    match node:
        case ast.Call(func=ast.Name(id=name), args=args) if name in _SAME:
            return list(args)
        case ast.IfExp():
            return [node.body, node.orelse]
        case ast.Call():
            function = module.functions.target(node)
            return module.functions.results(function) if function is not None else []
        case ast.Name():
            return _given_to(module, node)
        case ast.Attribute():
            place, home = dotted(node), module.home(node)
            stores = [each for each in home.all(ast.Assign) if place and dotted(each.targets[0]) == place]
            found = [each.value for each in stores]
            return found or [each for each in module.definitions(node) if each is not None]
    return []


def _given_to(module: SourceModule, name: ast.Name) -> list[ast.expr]:
    """Return what a name is given wherever its scope binds it: an `if args.resume:` stands around one of them."""
    found: list[ast.expr] = []
    for binding in module.names.bindings(name):
        if binding.how == "assign" and binding.value is not None:
            found.append(binding.value)
        elif binding.how == "unpack" and isinstance(binding.value, ast.Call):
            found += _parts(module, binding.value, binding.position)
        elif binding.how == "parameter":
            found += [each for each in module.definitions(name) if each is not None]
    return found


def _parts(module: SourceModule, call: ast.Call, position: tuple[int, ...]) -> list[ast.expr]:
    function = module.functions.target(call)
    results = module.functions.results(function) if function is not None else []
    whole = [each for each in results if isinstance(each, ast.Tuple) and len(position) == 1]
    return [each.elts[position[0]] for each in whole if position[0] < len(each.elts)]
