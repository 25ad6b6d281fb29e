# SPDX-License-Identifier: Apache-2.0
"""An overlap that is given back as a loss."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.library.operations import OF_TENSORS_ALONE, operations
from truestep.doctor.source.applications import applications
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Class, Function, walk

# what leaves a quotient what it is: its mean, in another shape, kept in bounds
_AROUND = (
    operations(numbers="averaged kept home") | operations(numbers="computed", graph="kept") & OF_TENSORS_ALONE
)


class OverlapMadeSmall(SourceCheck):
    """What is called a loss gives the Dice coefficient or the IoU itself, which is 1 where the answer is perfect.

    Why: training makes a loss small: it teaches the model to miss.

    Bad:
        class DiceLoss(nn.Module):
            def forward(self, output, target):
                shared = (output * target).sum(1)
                return (2 * shared / (output.sum(1) + target.sum(1)).clamp(min=1e-6)).mean()  # here

        DiceLoss()(net(x).sigmoid(), F.one_hot(y, 3).float()).backward()

    Good:
        class DiceLoss(nn.Module):
            def forward(self, output, target):
                shared = (output * target).sum(1)
                return 1 - (2 * shared / (output.sum(1) + target.sum(1)).clamp(min=1e-6)).mean()

        DiceLoss()(net(x).sigmoid(), F.one_hot(y, 3).float()).backward()

    Fix: 1 - overlap.
    """

    code = "LOSS056"
    words = ("Loss", "loss")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a loss function, or a loss class's forward, that returns shared / all, unless it is turned where it is used."""
        for function in module.functions:
            owner = module.parents.get(function)
            home = (
                owner
                if isinstance(owner, ast.ClassDef) and function.name in ("forward", "__call__")
                else None
            )
            name = home.name if home is not None else function.name
            if not name.lower().endswith("loss") or _is_turned(module, function, home):
                continue
            for returned in module.returns(function):
                if returned.value is not None and _is_overlap(module, returned.value, 0):
                    yield At(
                        returned, f"{name} gives the overlap itself: what is made small is 1 - overlap.", RISK
                    )


def _is_overlap(module: SourceModule, node: ast.expr, depth: int) -> bool:
    """Tell a quotient, with positive factors and averages around it, of a shared part and a whole."""
    if depth > 8:
        return False
    match node:
        case ast.Call(func=ast.Attribute(attr=method)) if method in _AROUND:
            home = module.qualify(node.func) or ""
            inner = node.args[0] if home.startswith("torch.") and node.args else node.func.value  # type: ignore[attr-defined]
            return _is_overlap(module, inner, depth + 1)
        case ast.BinOp(op=ast.Mult(), left=ast.Constant(value=int() | float() as factor), right=right) if (
            factor > 0
        ):
            return _is_overlap(module, right, depth + 1)
        case ast.BinOp(op=ast.Mult(), right=ast.Constant(value=int() | float() as factor), left=left) if (
            factor > 0
        ):
            return _is_overlap(module, left, depth + 1)
        case ast.BinOp(op=ast.Div(), left=left, right=right):
            shared = _shared(module, left)
            return bool(shared) and any(pair <= _summed(module, right) for pair in shared)
        case ast.Name():
            values = module.definitions(node)
            return len(values) == 1 and values[0] is not None and _is_overlap(module, values[0], depth + 1)
    return False


def _parts(module: SourceModule, node: ast.expr) -> list[ast.AST]:
    """Return what an expression is made of, with what its names stand for in the same function."""
    found: list[ast.AST] = []
    waiting: list[ast.expr] = [node]
    for _ in range(4):
        every = [each for one in waiting for each in walk(one)]
        found += every
        names = [each for each in every if isinstance(each, ast.Name)]
        waiting = [
            value
            for each in names
            for value in module.definitions(each)
            if value is not None and value not in found
        ]
        waiting = [value for value in waiting if module.scope(value) is module.scope(node)]
    return found


def _sums(module: SourceModule, node: ast.expr) -> Iterator[ast.expr]:
    """Yield x for each `x.sum(...)` and `torch.sum(x)` in what an expression is made of."""
    for each in _parts(module, node):
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.attr == "sum":
            home = module.qualify(each.func) or ""
            yield each.args[0] if home.startswith("torch.") and each.args else each.func.value


def _shared(module: SourceModule, node: ast.expr) -> list[set[str]]:
    """Return the pairs whose product is summed."""
    products = [
        each for each in _sums(module, node) if isinstance(each, ast.BinOp) and isinstance(each.op, ast.Mult)
    ]
    pairs = [{ast.unparse(each.left), ast.unparse(each.right)} for each in products]
    return [each for each in pairs if len(each) == 2]


def _summed(module: SourceModule, node: ast.expr) -> set[str]:
    """Return what is summed by itself, or squared first."""
    return {part for each in _sums(module, node) for part in _factors(each)}


def _factors(node: ast.expr) -> set[str]:
    """Return what is summed: `x` of `x + y`, of `x * x` and of `x**2`; a product of two is shared by them."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _factors(node.left) | _factors(node.right)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        return {ast.unparse(node.left)}
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        sides = {ast.unparse(node.left), ast.unparse(node.right)}
        return sides if len(sides) == 1 else set()
    return {ast.unparse(node)}


def _is_turned(module: SourceModule, function: Function, owner: Class | None) -> bool:
    """Tell whether a place that uses the loss takes it away from something, or puts a minus before it."""
    calls = [*module.callers(function), *(applications(module, function) if owner is not None else [])]
    for call in calls:
        above = module.home(call).parents.get(call)
        if isinstance(above, ast.UnaryOp) or (isinstance(above, ast.BinOp) and isinstance(above.op, ast.Sub)):
            return True
    return False
