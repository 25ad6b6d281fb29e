# SPDX-License-Identifier: Apache-2.0
"""A running total that keeps every graph."""

import ast
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import BUG, RISK, At, SourceCheck
from truestep.doctor.source.flow import loses_graph
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted, walk
from truestep.doctor.source.rewriting import Edits, inserted_behind


class LossSummedWithGraph(SourceCheck):
    """The loss tensor itself is added to a running total, or put in a list.

    Why: the total, or the list, keeps the graph of every step alive; memory grows until it is full.

    Bad:
        total = 0
        for x, y in loader:
            loss = F.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss  # here

    Good:
        total = 0
        for x, y in loader:
            loss = F.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.detach()

    Fix: keep loss.detach() (or loss.item(), which waits for the GPU).
    """

    code = "MEM001"
    words = ("backward",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report `total += loss` and `losses.append(loss)` in the loop of that name's backward()."""
        names_in: dict[ast.For | ast.While, set[str]] = {}
        for name, loop in self._trained(module):
            names_in.setdefault(loop, set()).add(name)
        for loop, names in names_in.items():
            for node in walk(loop):
                stored = _carrier(self._stored(node), names)
                if stored is not None and self._stays(module, node, loop) and not _is_cut(module, stored):
                    is_total = isinstance(node, ast.AugAssign)
                    what = "added to a total" if is_total else "put in a list"
                    text = f"{dotted(stored)!r} is {what} with its graph."
                    yield At(node, text, BUG if is_total else RISK)

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Detach it."""
        kept = _carrier(self._stored(node), {name for name, _ in self._trained(module)})
        return [inserted_behind(module, kept, ".detach()")] if kept is not None else []

    def _trained(self, module: SourceModule) -> Iterator[tuple[str, ast.For | ast.While]]:
        for call in module.method_calls("backward"):
            name = dotted(call.func.value) if isinstance(call.func, ast.Attribute) else None
            loop = module.loop(call)
            if name is not None and loop is not None and module.scope(loop) is module.scope(call):
                yield name, loop

    def _stored(self, node: ast.AST) -> ast.expr | None:
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
            return node.value
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "append"
            and node.args
        ):
            return node.args[0]
        return None

    def _stays(self, module: SourceModule, node: ast.AST, loop: ast.AST) -> bool:
        """What is itself gone backward through, or made anew in the loop, does not pile up."""
        target = (
            node.target
            if isinstance(node, ast.AugAssign)
            else node.func.value
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
            else None
        )
        name = dotted(target) if target is not None else None
        if name is None:
            return isinstance(target, ast.Subscript)
        backward = any(
            isinstance(c.func, ast.Attribute) and dotted(c.func.value) == name
            for c in module.method_calls("backward")
        )
        inside = [
            each
            for each in walk(loop)
            if isinstance(each, ast.Assign) and any(dotted(t) == name for t in each.targets)
        ]
        return not backward and not inside


def _is_cut(module: SourceModule, stored: ast.expr) -> bool:
    """Tell whether the name was given the loss without its graph before: `loss = loss.detach()`."""
    values = module.definitions(stored)
    return bool(values) and all(each is not None and loses_graph(each) for each in values)


def _carrier(value: ast.expr | None, names: set[str]) -> ast.expr | None:
    """Return the loss within a value: itself, or multiplied (by a batch's size) or divided."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult | ast.Div):
        return _carrier(value.left, names) or (
            _carrier(value.right, names) if isinstance(value.op, ast.Mult) else None
        )
    return value if value is not None and dotted(value) in names else None
