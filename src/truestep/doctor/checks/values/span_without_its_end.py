# SPDX-License-Identifier: Apache-2.0
"""A span that is cut one short."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.library.operations import operations
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import names_in

_PLACES = ("argmax", "topk", "max")
_HANDED_ON = operations(numbers="kept picked indices")


class SpanWithoutItsEnd(SourceCheck):
    """A slice runs from the best start to the best end, both places of tokens: a slice leaves its end out.

    Why: every answer lacks its last token, and one of a single token is empty: exact match and F1 are too low.

    Bad:
        tokens = list("abcd")
        starts, ends = net(x).argmax(1), net(x + 1).argmax(1)
        for i in range(len(x)):
            answer = tokens[starts[i]:ends[i]]  # here

    Good:
        tokens = list("abcd")
        starts, ends = net(x).argmax(1), net(x + 1).argmax(1)
        for i in range(len(x)):
            answer = tokens[starts[i]:ends[i] + 1]

    Fix: [start:end + 1].
    """

    code = "VALUE042"
    words = ("max", "topk")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a slice of which both ends are where something is greatest."""
        for node in module.all(ast.Slice):
            if node.lower is None or node.upper is None or node.step is not None:
                continue
            if ast.unparse(node.lower) == ast.unparse(node.upper):
                continue
            if _is_place(module, node.lower, 0) and _is_place(module, node.upper, 0):
                yield At(
                    module.parents[node],
                    "The end is a token's place, and a slice leaves its end out: + 1 is missing.",
                    RISK,
                )


def _is_place(module: SourceModule, node: ast.expr | None, depth: int) -> bool:
    """Tell the index that an argmax gave, and what was only picked of such."""
    if depth > 4 or node is None:
        return False
    if isinstance(node, ast.Subscript):
        if isinstance(node.value, ast.Call) and _gives(module, node.value) == "max":
            return ast.unparse(node.slice) == "1"
        return _is_place(module, node.value, depth + 1)
    if isinstance(node, ast.Attribute):
        return node.attr == "indices" or (node.attr == "data" and _is_place(module, node.value, depth + 1))
    if isinstance(node, ast.Name):
        ways = _ways(module, node)
        return bool(ways) and all(_of_way(module, *each, depth) for each in ways)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if _gives(module, node) == "argmax":
            return True
        if node.func.attr in _HANDED_ON:
            inner = (
                node.args[0]
                if (module.qualify(node.func) or "").startswith("torch.") and node.args
                else node.func.value
            )
            return _is_place(module, inner, depth + 1)
    return False


def _ways(module: SourceModule, name: ast.Name) -> list[tuple[ast.expr, tuple[int, ...]]]:
    found = []
    for each in module.resolver.reaching(name):
        if each.value is None or each.how not in ("assign", "unpack"):
            return []
        if name.id in names_in(each.value) and isinstance(each.value, ast.Call) and each.how == "assign":
            continue  # `start = start.gather(...)`: it is of the kind that it was
        found.append((each.value, each.position))
    if not found:
        found = [
            (each.value, each.position)
            for each in module.bindings(name)
            if each.value is not None and each.how == "unpack"
        ]
    return found


def _of_way(module: SourceModule, value: ast.expr, position: tuple[int, ...], depth: int) -> bool:
    """Tell `_, end = scores.max(1)` from `best, _ = scores.max(1)`."""
    if position:
        return position == (1,) and isinstance(value, ast.Call) and _gives(module, value) in ("max", "topk")
    return _is_place(module, value, depth + 1)


def _gives(module: SourceModule, call: ast.Call) -> str:
    """Return `max` for `x.max(dim=1)` and `torch.max(x, 1)`, `argmax` and `topk` likewise."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if name not in _PLACES:
        return ""
    library = (module.qualify(call.func) or "").partition(".")[0] in ("torch", "numpy")
    axes = len(call.args) + len(call.keywords) - library
    return name if name == "argmax" or axes > 0 else ""
