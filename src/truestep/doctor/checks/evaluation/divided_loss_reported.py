# SPDX-License-Identifier: Apache-2.0
"""A loss that is shown after it was divided for accumulation."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Function, last_part, walk
from truestep.doctor.source.signatures import own_name

_SHOWS = ("add_scalar", "set_postfix", "print", "log", "info", "log_metric", "log_dict")


class DividedLossReported(SourceCheck):
    """A loss is divided by the number of batches in an update, and this part of it is returned or shown as the loss.

    Why: the curve is lower by that number, and moves whenever the accumulation is changed.

    Bad:
        def update(i, x, y, accumulation_steps=4):
            loss = F.cross_entropy(net(x), y)
            loss = loss / accumulation_steps
            loss.backward()
            if (i + 1) % accumulation_steps == 0:
                opt.step()
                opt.zero_grad()
            return loss.item()  # here

    Good:
        def update(i, x, y, accumulation_steps=4):
            loss = F.cross_entropy(net(x), y)
            (loss / accumulation_steps).backward()
            if (i + 1) % accumulation_steps == 0:
                opt.step()
                opt.zero_grad()
            return loss.item()

    Fix: divide where backward() is called, and keep the loss itself.

    Evidence: beds A, C, D, G, I, U: 4 true, 2 debatable, 0 false.
    """

    code = "EVAL033"
    words = ("accum",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report what a function returns, or shows, of a loss that it divided and went backward on."""
        for node in module.stores:
            name, scope = _name_divided_into_itself(node), module.scope(node)
            if (
                name is None
                or not isinstance(scope, Function)
                or not _is_backward_called_on(module, scope, name)
            ):
                continue
            for shown in _statements_reporting_value(module, scope, name):
                if shown.lineno > node.lineno and not _is_multiplied_back(module, shown, node, name):
                    yield At(
                        shown,
                        f"{name!r} is only a part of the loss here: it was divided for accumulation.",
                        RISK,
                    )


def _name_divided_into_itself(node: ast.Assign | ast.AugAssign) -> str | None:
    """Return the name in `loss = loss / steps` and `loss /= steps`."""
    if isinstance(node, ast.AugAssign):
        divided = isinstance(node.op, ast.Div) and _is_accumulation_step_count(node.value)
        return node.target.id if divided and isinstance(node.target, ast.Name) else None
    target, value = node.targets[0], node.value
    if isinstance(target, ast.Name) and isinstance(value, ast.BinOp) and isinstance(value.op, ast.Div):
        same = isinstance(value.left, ast.Name) and value.left.id == target.id
        return target.id if same and _is_accumulation_step_count(value.right) else None
    return None


def _is_accumulation_step_count(node: ast.expr) -> bool:
    """Tell the number of batches in an update, by its name."""
    return "accum" in last_part(node).lower()


def _is_backward_called_on(module: SourceModule, scope: ast.AST, name: str) -> bool:
    calls = [
        each for each in module.method_calls("backward", "manual_backward") if module.scope(each) is scope
    ]
    return any(isinstance(part, ast.Name) and part.id == name for each in calls for part in walk(each))


def _statements_reporting_value(module: SourceModule, scope: ast.AST, name: str) -> Iterator[ast.stmt]:
    """Yield the statements of a function that return a value, or show it."""
    for node in walk(scope):
        is_shown = isinstance(node, ast.Return) and node.value is not None
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            is_shown = own_name(node.value.func) in _SHOWS
        if isinstance(node, (ast.Return, ast.Expr)) and is_shown and module.scope(node) is scope:
            if any(isinstance(each, ast.Name) and each.id == name for each in walk(node)):
                yield node


def _is_multiplied_back(module: SourceModule, shown: ast.stmt, divided: ast.stmt, name: str) -> bool:
    """Tell whether it is multiplied again, there or on the way, or has another value by then."""
    again = any(isinstance(each, ast.Mult) for each in walk(shown))
    others = [
        each
        for each in module.stores
        if module.scope(each) is module.scope(shown) and divided.lineno < each.lineno < shown.lineno
    ]
    stored = [part for each in others for part in walk(each) if isinstance(part, ast.Name)]
    return again or any(part.id == name and isinstance(part.ctx, ast.Store) for part in stored)
