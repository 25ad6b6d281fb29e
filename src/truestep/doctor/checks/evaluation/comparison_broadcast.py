# SPDX-License-Identifier: Apache-2.0
"""A row of predictions beside a column of labels."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.values import argument, constant


class ComparisonBroadcast(SourceCheck):
    """Predictions of shape (batch,) are compared with labels of shape (batch, 1).

    Why: the comparison is broadcast to (batch, batch): every prediction meets every label, and the
    accuracy can exceed 1.

    Bad:
        labels = y.unsqueeze(1)
        preds = net(x).argmax(1)
        correct = (preds == labels).sum()  # here

    Good:
        labels = y.unsqueeze(1)
        preds = net(x).argmax(1)
        correct = (preds == labels.squeeze(1)).sum()

    Fix: give both the same shape.
    """

    code = "EVAL030"
    words = ("unsqueeze", "view(-1, 1)", "reshape(-1, 1)", "[:, None]")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report `a == b` and `a.eq(b)` where one was reduced along axis 1 and the other made a column."""
        for node, left, right in _comparisons(module):
            shapes = {_shape(module, left), _shape(module, right)}
            if shapes == {"row", "column"}:
                yield At(node, "(batch,) is compared with (batch, 1): each prediction with every label.")


def _comparisons(module: SourceModule) -> Iterator[tuple[ast.expr, ast.expr, ast.expr]]:
    for node in module.all(ast.Compare):
        if len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq | ast.NotEq):
            yield node, node.left, node.comparators[0]
    for call in [*module.method_calls("eq", "ne"), *module.calls("torch.eq", "torch.ne")]:
        assert isinstance(call.func, ast.Attribute)
        if len(call.args) == 2:
            yield call, call.args[0], call.args[1]
        elif len(call.args) == 1:
            yield call, call.func.value, call.args[0]


def _shape(module: SourceModule, node: ast.expr, depth: int = 0) -> str | None:
    """Return "row" or "column" if the last change of shape, on every way here, left the value so."""
    if depth > 6:
        return None
    match node:
        case ast.Name():
            places = module.unpacked(node)
            if places is not None:
                found = {_unpacked(module, value, place) for value, place in places}
            else:
                values = module.definitions(node)
                found = {_shape(module, each, depth + 1) if each is not None else None for each in values}
            return found.pop() if len(found) == 1 else None
        case ast.Attribute(attr="data"):
            return _shape(module, node.value, depth + 1)
        case ast.Subscript():
            return _indexed(module, node)
        case ast.Call(func=ast.Attribute()):
            return _called(module, node, depth)
    return None


def _unpacked(module: SourceModule, value: ast.expr, place: tuple[int, ...]) -> str | None:
    """`_, preds = torch.max(outputs, 1)`."""
    return (
        "row" if isinstance(value, ast.Call) and place in ((0,), (1,)) and _reduces(module, value) else None
    )


def _indexed(module: SourceModule, node: ast.Subscript) -> str | None:
    if ast.unparse(node.slice) in (":, None", "(:, None)", "..., None"):
        return "column"
    is_index = isinstance(node.value, ast.Call) and constant(node.slice) in (0, 1)
    return "row" if is_index and isinstance(node.value, ast.Call) and _reduces(module, node.value) else None


def _called(module: SourceModule, call: ast.Call, depth: int) -> str | None:
    assert isinstance(call.func, ast.Attribute)
    texts = [ast.unparse(each) for each in call.args]
    match call.func.attr:
        case "unsqueeze":
            return "column" if texts in (["1"], ["-1"]) else None
        case "view" | "reshape":
            return {"-1, 1": "column", "-1": "row"}.get(", ".join(texts))
        case "to" | "cuda" | "cpu" | "float" | "long" | "int" | "detach" | "type" | "clone" | "bool":
            return _shape(module, call.func.value, depth + 1)
        case "argmax":
            return "row" if _reduces(module, call) else None
    return None


def _reduces(module: SourceModule, call: ast.Call) -> bool:
    """Tell `torch.max(x, 1)`, `x.max(1)`, `x.argmax(dim=1)`: no axis is kept."""
    qualified = module.qualify(call.func) in ("torch.max", "torch.argmax")
    method = isinstance(call.func, ast.Attribute) and call.func.attr in ("max", "argmax")
    dim = argument(call, 1 if qualified else 0, "dim")
    kept = argument(call, 2 if qualified else 1, "keepdim")
    return (qualified or method) and constant(dim) in (1, -1) and constant(kept) in (None, False)
