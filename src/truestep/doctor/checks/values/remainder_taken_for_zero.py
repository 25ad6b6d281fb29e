# SPDX-License-Identifier: Apache-2.0
"""`if step % 100: save()`."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import walk
from truestep.doctor.source.values import literal

_LEAVES = (ast.Continue, ast.Break, ast.Return, ast.Raise, ast.Pass)
_PARITY = 2  # `if i % 2:` asks for the odd ones


class RemainderTakenForZero(SourceCheck):
    """What is to be done every so many steps is done in all the others: a remainder is true unless it is 0.

    Why: saving, logging or copying to the target runs at nearly every step, and never at the steps that were meant.

    Bad:
        for step, (x, y) in enumerate(loader):
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()
            if step % save_every:  # here
                torch.save(net.state_dict(), "last.pt")

    Good:
        for step, (x, y) in enumerate(loader):
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()
            if step % save_every == 0:
                torch.save(net.state_dict(), "last.pt")

    Fix: compare it: `if step % save_every == 0`.
    """

    code = "VALUE050"
    words = ("%",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a bare remainder of a counter that opens a branch of calls, with no other branch beside it."""
        if "torch" not in module.text:
            return
        for node in module.all(ast.If):
            if not isinstance(node.test, ast.BinOp) or not isinstance(node.test.op, ast.Mod) or node.orelse:
                continue
            if _counts(module, node) and _acts(node):
                every = ast.unparse(node.test.right)
                text = f"This is done at all steps but the multiples of {every}: a remainder is true unless it is 0."
                yield At(node.test, text, RISK)


def _counts(module: SourceModule, node: ast.If) -> bool:
    """Tell a remainder by an option, or by a number above 2, in a loop; a text may be formatted by `%`."""
    assert isinstance(node.test, ast.BinOp)
    if module.loop(node) is None or isinstance(node.test.left, ast.Constant | ast.JoinedStr):
        return False
    size = literal(module, node.test.right)
    return isinstance(node.test.right, ast.Name | ast.Attribute | ast.Constant | ast.Subscript) and not (
        isinstance(size, str) or (isinstance(size, int) and size <= _PARITY)
    )


def _acts(node: ast.If) -> bool:
    """Tell a branch that only calls something: it neither leaves, nor chooses a value."""
    if any(isinstance(each, _LEAVES) for part in node.body for each in walk(part)):
        return False
    return all(isinstance(each, ast.Expr) and isinstance(each.value, ast.Call) for each in node.body)
