# SPDX-License-Identifier: Apache-2.0
"""`if step % 100: save()`."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import walk
from truestep.doctor.source.uses import arms
from truestep.doctor.source.values import literal, seen_through

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

    code = "VALUE040"
    words = ("%",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a bare remainder of a counter that opens a branch of calls, with no other branch beside it."""
        if "torch" not in module.text:
            return
        for node in module.all(ast.If):
            asked, body, other = arms(node)
            test = seen_through(module, asked)
            if other or not isinstance(test, ast.BinOp) or not isinstance(test.op, ast.Mod):
                continue
            if module.loop(node) is not None and _counts(module, test) and _acts(body):
                every = ast.unparse(test.right)
                text = f"This is done at all steps but the multiples of {every}: a remainder is true unless it is 0."
                yield At(asked, text, RISK)


def _counts(module: SourceModule, test: ast.BinOp) -> bool:
    """Tell a remainder by an option, or by a number above 2; a text may be formatted by `%`."""
    if isinstance(test.left, ast.Constant | ast.JoinedStr):
        return False
    size = literal(module, test.right)
    return isinstance(test.right, ast.Name | ast.Attribute | ast.Constant | ast.Subscript) and not (
        isinstance(size, str) or (isinstance(size, int) and size <= _PARITY)
    )


def _acts(body: list[ast.stmt]) -> bool:
    """Tell a branch that only calls something: it neither leaves, nor chooses a value."""
    if any(isinstance(each, _LEAVES) for part in body for each in walk(part)):
        return False
    calls = [isinstance(each, ast.Expr) and isinstance(each.value, ast.Call) for each in body]
    return bool(calls) and calls[-1] and all(isinstance(each, ast.Expr | ast.Assign) for each in body)
