# SPDX-License-Identifier: Apache-2.0
"""`out[:, i] = f(values[:, 0])` in a loop over i."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted, walk
from truestep.doctor.source.uses import names_read, names_stored


class FixedIndexInLoop(SourceCheck):
    """A loop over an index writes the place of each index, and reads the place of index 0.

    Why: every entry is computed from the first.

    Bad:
        priorities = torch.zeros(8, 5)
        for i in range(1, 5):
            value = net(x).sum(1)
            priorities[:, i] = (value - targets[:, 0]).abs()  # here

    Good:
        priorities = torch.zeros(8, 5)
        for i in range(1, 5):
            value = net(x).sum(1)
            priorities[:, i] = (value - targets[:, i]).abs()

    Fix: read with the loop's index too.
    """

    code = "VALUE005"

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a read at 0 of the same form, or an entry that is the same in each iteration."""
        if "torch" not in module.text:
            return
        for loop in module.all(ast.For):
            index = _index_of(loop)
            changing = names_stored(loop)
            for node in walk(loop) if index is not None else ():
                if not (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript)):
                    continue
                place = node.targets[0].slice
                if _is_of_one_index(module, node, loop, index or ""):
                    continue
                if index in names_read(place) and index not in names_read(node.value):
                    fixed = _read_at_first(place, node.value, index or "", changing)
                    if fixed is not None:
                        text = f"{ast.unparse(fixed)} is the same in each iteration over {index!r}."
                        yield At(node, text, RISK)


def _is_of_one_index(module: SourceModule, node: ast.AST, loop: ast.For, index: str) -> bool:
    """Tell what is done for one index alone: below `if i == 0`, or its `elif`."""
    inside = [each for each in module.ancestors(node) if isinstance(each, ast.If) and each in walk(loop)]
    return any(index in names_read(each.test) for each in inside)


def _index_of(loop: ast.For) -> str | None:
    target, over = loop.target, loop.iter
    if isinstance(target, ast.Tuple) and isinstance(over, ast.Call) and dotted(over.func) == "enumerate":
        target = target.elts[0]
    return target.id if isinstance(target, ast.Name) else None


def _read_at_first(
    place: ast.expr, value: ast.expr, index: str, changing: frozenset[str]
) -> ast.Subscript | None:
    reads = [each for each in walk(value) if isinstance(each, ast.Subscript)]
    computed = any(isinstance(each, ast.Call) for each in walk(value))
    if not computed and not names_read(value) & changing:
        return next((each for each in reads if _is_zero(each.slice)), None)
    fixed = [
        each for each in reads if dotted(each.value) is not None and not names_read(each.value) & changing
    ]
    return next((each for each in fixed if _is_alike(place, each.slice, index)), None)


def _is_alike(written: ast.expr, read: ast.expr, index: str) -> bool:
    """Tell `[:, 0]` beside `[:, i]`."""
    if not (isinstance(written, ast.Tuple) and isinstance(read, ast.Tuple)):
        return False
    pairs = list(zip(written.elts, read.elts, strict=False))
    if len(written.elts) != len(read.elts) or len(pairs) < 2:
        return False
    return all(
        _is_zero(there)
        if isinstance(here, ast.Name) and here.id == index
        else ast.dump(here) == ast.dump(there)
        for here, there in pairs
    )


def _is_zero(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 0 and not isinstance(node.value, bool)
