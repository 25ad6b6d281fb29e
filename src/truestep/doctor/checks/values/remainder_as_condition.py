# SPDX-License-Identifier: Apache-2.0
"""`if step % every:` where every so many steps are meant."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import BUG, RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.values import literal

_LEAVES = ast.Continue | ast.Break | ast.Return | ast.Raise | ast.Pass


class RemainderAsCondition(SourceCheck):
    """What is due every so many steps stands under `if step % every:`, which holds at all the other steps.

    Why: a remainder counts as true where it is not 0: a target is copied, a model saved or measured, at every step but
    the ones that are meant.

    Bad:
        def training(net, target, opt, update_every):
            for step, (x, y) in enumerate(loader):
                opt.zero_grad()
                F.mse_loss(net(x), y).backward()
                opt.step()
                if step % update_every:  # here
                    target.load_state_dict(net.state_dict())

    Good:
        def training(net, target, opt, update_every):
            for step, (x, y) in enumerate(loader):
                opt.zero_grad()
                F.mse_loss(net(x), y).backward()
                opt.step()
                if step % update_every == 0:
                    target.load_state_dict(net.state_dict())

    Fix: `if step % every == 0:`.
    """

    code = "VALUE063"
    words = ("%",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a bare remainder by a setting as the condition of what has no other branch and leaves no loop."""
        for node in module.all(ast.If):
            test = node.test
            if not isinstance(test, ast.BinOp) or not isinstance(test.op, ast.Mod) or node.orelse:
                continue
            if isinstance(test.left, ast.Constant | ast.JoinedStr) or not isinstance(
                test.right, ast.Name | ast.Attribute
            ):
                continue
            if (
                isinstance(node.body[-1], _LEAVES)
                or literal(module, test.right) in (1, 2)
                or module.loop(node) is None
            ):
                continue
            yield At(
                test,
                "A remainder is true where it is not 0: this runs at all steps but every so many.",
                BUG if _has_siblings(module, node, test) else RISK,
            )


def _has_siblings(module: SourceModule, node: ast.If, test: ast.BinOp) -> bool:
    """Tell whether the same function asks for the same count's remainder to be 0 elsewhere."""
    counter = ast.unparse(test.left)
    for each in module.all(ast.Compare):
        if (
            module.scope(each) is module.scope(node)
            and isinstance(each.left, ast.BinOp)
            and len(each.ops) == 1
        ):
            is_remainder = isinstance(each.left.op, ast.Mod) and ast.unparse(each.left.left) == counter
            if is_remainder and isinstance(each.ops[0], ast.Eq) and ast.unparse(each.comparators[0]) == "0":
                return True
    return False
