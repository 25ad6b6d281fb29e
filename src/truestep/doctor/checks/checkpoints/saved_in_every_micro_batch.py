# SPDX-License-Identifier: Apache-2.0
"""A save that repeats while its counter stands still."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted, walk
from truestep.doctor.source.uses import arms

_DEAR = ("save", "checkpoint", "evaluate", "validate", "sample", "test")


class SavedInEveryMicroBatch(SourceCheck):
    """A save waits for a counter of updates, which stays the same over the micro-batches of a window.

    Why: when it is due it happens at every micro-batch, in the middle of an accumulation.

    Bad:
        updates = 0
        for i, (x, y) in enumerate(loader):
            (F.cross_entropy(net(x), y) / 4).backward()
            if (i + 1) % 4 == 0 or i + 1 == len(loader):
                opt.step()
                opt.zero_grad()
                updates += 1
            if updates % 100 == 0:  # here
                torch.save(net.state_dict(), f"{updates}.pt")

    Good:
        updates = 0
        for i, (x, y) in enumerate(loader):
            (F.cross_entropy(net(x), y) / 4).backward()
            if (i + 1) % 4 == 0 or i + 1 == len(loader):
                opt.step()
                opt.zero_grad()
                updates += 1
                if updates % 100 == 0:
                    torch.save(net.state_dict(), f"{updates}.pt")

    Fix: ask under the test that counts the update.
    """

    code = "SAVE008"
    words = ("%",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a save under a remainder of what is counted under a test that not every micro-batch passes."""
        for counted in module.all(ast.AugAssign) if "backward" in module.text else ():
            counter, loop = dotted(counted.target), module.loop(counted)
            guards = [each for each in _tests_above(module, counted, loop) if _is_of_window(each.test)]
            if counter is None or loop is None or not guards or not isinstance(counted.op, ast.Add):
                continue
            for node in walk(loop):
                if isinstance(node, ast.If) and module.loop(node) is loop and _asks(arms(node)[0], counter):
                    above = [*_tests_above(module, node, loop), node]
                    if not any(_is_of_window(each.test) for each in above) and _is_dear(node):
                        yield At(node, f"{counter!r} is the same in every micro-batch of a window.", RISK)


def _tests_above(module: SourceModule, node: ast.AST, loop: ast.AST | None) -> list[ast.If]:
    found: list[ast.If] = []
    for each in module.ancestors(node):
        if each is loop:
            break
        if isinstance(each, ast.If):
            found.append(each)
    return found


def _is_of_window(test: ast.expr) -> bool:
    """Tell `(i + 1) % 4 == 0` and `accelerator.sync_gradients`."""
    inside = list(walk(test))
    remainder = any(isinstance(each, ast.BinOp) and isinstance(each.op, ast.Mod) for each in inside)
    named = [(dotted(each) or "").rsplit(".", 1)[-1] for each in inside]
    return (
        (remainder and any("accum" in name for name in named)) or "sync_gradients" in named or _counts(test)
    )


def _counts(test: ast.expr) -> bool:
    """Tell `(i + 1) % n == 0`, the way in which windows are written."""
    compared = [each.left for each in walk(test) if isinstance(each, ast.Compare)]
    left = [each.left for each in compared if isinstance(each, ast.BinOp) and isinstance(each.op, ast.Mod)]
    return any(isinstance(each, ast.BinOp) for each in left)


def _asks(test: ast.expr, counter: str) -> bool:
    mods = [each for each in walk(test) if isinstance(each, ast.BinOp) and isinstance(each.op, ast.Mod)]
    return any(dotted(each.left) == counter for each in mods)


def _is_dear(node: ast.If) -> bool:
    calls = [each for part in arms(node)[1] for each in walk(part) if isinstance(each, ast.Call)]
    names = [(dotted(each.func) or "").rsplit(".", 1)[-1] for each in calls]
    return any(word in name for name in names for word in _DEAR)
