# SPDX-License-Identifier: Apache-2.0
"""Box offsets that are divided by the wrong box."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import walk
from truestep.doctor.source.resolving import MAX_DEPTH
from truestep.doctor.source.terms import value_here

_LIBRARIES = ("torch", "numpy", "math")


class OffsetsByOtherSize(SourceCheck):
    """Box offsets divide the shift of the centre by the size of the box that is aimed at, and the logarithm by the other's.

    Why: decoding multiplies the shift with the size of the box that it starts from: boxes land in the wrong place.

    Bad:
        def encoded(anchors, boxes):
            shift = (boxes[:, 0] - anchors[:, 0]) / boxes[:, 2]  # here
            scale = torch.log(boxes[:, 2] / anchors[:, 2])
            return torch.stack([shift, scale], 1)

    Good:
        def encoded(anchors, boxes):
            shift = (boxes[:, 0] - anchors[:, 0]) / anchors[:, 2]
            scale = torch.log(boxes[:, 2] / anchors[:, 2])
            return torch.stack([shift, scale], 1)

    Fix: divide by the size of the box whose centre is subtracted.
    """

    code = "LOSS058"
    words = ("log(",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report (a - b) / size of a, in a function that also has log(size of a / size of b)."""
        ratios: dict[ast.AST, set[tuple[str, str]]] = {}
        for call in module.all(ast.Call):
            last = call.func.attr if isinstance(call.func, ast.Attribute) else ""
            inner = call.args[0] if call.args else None
            if last == "log" and isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Div):
                pair = _box(module, inner.left), _box(module, inner.right)
                if pair[0] and pair[1] and pair[0] != pair[1]:
                    ratios.setdefault(module.scope(call), set()).add(pair)
        for node in module.all(ast.BinOp) if ratios else ():
            known = ratios.get(module.scope(node), set())
            shift = node.left
            if not (
                known
                and isinstance(node.op, ast.Div)
                and isinstance(shift, ast.BinOp)
                and isinstance(shift.op, ast.Sub)
            ):
                continue
            pair = _box(module, shift.left), _box(module, shift.right)
            if pair in known and (pair[1], pair[0]) not in known and _box(module, node.right) == pair[0]:
                yield At(
                    node,
                    "This shift is divided by the size of the box aimed at, and decoded by that of the other.",
                    RISK,
                )


def _box(module: SourceModule, node: ast.expr) -> str:
    """Return the one variable that a coordinate or a size is computed of, a parameter if it comes from one."""
    found = _roots(module, node, 0)
    return found.pop() if len(found) == 1 else ""


def _roots(module: SourceModule, node: ast.expr, depth: int) -> set[str]:
    found: set[str] = set()
    for name in (each for each in walk(node) if isinstance(each, ast.Name)):
        if (
            module.class_named(name) is not None
            or (module.qualify(name) or "").partition(".")[0] in _LIBRARIES
        ):
            continue
        value = value_here(module, name) if depth < MAX_DEPTH else None
        found |= (_roots(module, value, depth + 1) if value is not None else set()) or {name.id}
    return found
