# SPDX-License-Identifier: Apache-2.0
"""A straight-through estimate without its detach()."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import ADVICE, BUG, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted


class SumThatCancels(SourceCheck):
    """x + (y - x) is computed without detaching the difference: it is y, and so is its gradient.

    Why: it is meant to have the value of y and the gradient of x. Where y is a choice, x gets no gradient from here at all.

    Bad:
        book = nn.Embedding(3, 2)
        chosen = book(torch.cdist(x, book.weight).argmin(1))
        passed = x + (chosen - x)  # here

    Good:
        book = nn.Embedding(3, 2)
        chosen = book(torch.cdist(x, book.weight).argmin(1))
        passed = x + (chosen - x).detach()

    Fix: x + (y - x).detach().
    """

    code = "VALUE024"
    words = (" - ",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a sum of a name and of a difference from which that very name is subtracted."""
        for node in module.all(ast.BinOp) if "torch" in module.text else ():
            if not isinstance(node.op, ast.Add):
                continue
            for part, rest in ((node.left, node.right), (node.right, node.left)):
                name = dotted(part)
                taken = rest.right if isinstance(rest, ast.BinOp) and isinstance(rest.op, ast.Sub) else None
                cancels = name is not None and taken is not None and dotted(taken) == name
                divided = getattr(module.parents[node], "op", None)
                # a length padded and cut, as formulas for frames have it
                severity = ADVICE if isinstance(divided, ast.FloorDiv) else BUG
                if cancels and module.enclosing(node, ast.Slice) is None:  # there it only says how long
                    yield At(
                        node,
                        f"{name!r} is added and subtracted: what is left is the other term alone.",
                        severity,
                    )
                    break
