# SPDX-License-Identifier: Apache-2.0
"""A gradient kept by reference, then cleared in place."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted


class GradientAliasZeroed(SourceCheck):
    """x.grad is kept under another name, then zeroed in place.

    Why: both are one tensor: what was kept is zero too (and without clearing, it grows).

    Bad:
        g = x.grad
        x.grad.zero_()  # here
        print(g)

    Good:
        g = x.grad.clone()
        x.grad.zero_()
        print(g)

    Fix: x.grad.clone(), or x.grad = None instead of zero_().
    """

    code = "GRAD014"
    words = (".grad",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report zero_() of a gradient that was stored before and is read later."""
        for call in module.method_calls("zero_", "fill_"):
            cleared = _gradient(call.func.value) if isinstance(call.func, ast.Attribute) else None
            for kept in module.all(ast.Assign) if cleared is not None else ():
                target = kept.targets[0]
                if not (isinstance(target, ast.Name) and _gradient(kept.value) == cleared):
                    continue
                if _goes_on_to(module, kept, call) and _is_read_after(module, target, kept, call):
                    yield At(call, f"{target.id!r} is the same tensor as {cleared}: it becomes zero too.")
                    break


def _gradient(node: ast.expr) -> str | None:
    """Return `x.grad`, also of `x.grad.data` and `x.grad.detach()`: one memory."""
    while True:
        if isinstance(node, ast.Attribute) and node.attr == "data":
            node = node.value
        elif (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "detach"
        ):
            node = node.func.value
        else:
            break
    name = dotted(node)
    return name if name is not None and name.endswith(".grad") else None


def _goes_on_to(module: SourceModule, kept: ast.stmt, call: ast.Call) -> bool:
    """Tell whether the clearing follows the keeping: in its block, or in a block beneath."""
    blocks = [module.parents[module.statement(call)], *module.ancestors(module.statement(call))]
    return kept.lineno < call.lineno and module.parents[kept] in blocks


def _is_read_after(module: SourceModule, name: ast.Name, kept: ast.stmt, call: ast.Call) -> bool:
    """Tell whether the name is read behind the clearing, before it is given another value."""
    scope = module.scope(call)
    uses = [each for each in module.all(ast.Name) if each.id == name.id and module.scope(each) is scope]
    again = [each.lineno for each in uses if isinstance(each.ctx, ast.Store) and each.lineno > call.lineno]
    end = min(again, default=float("inf"))
    if any(isinstance(each.ctx, ast.Load) and call.lineno < each.lineno <= end for each in uses):
        return True
    loop = module.loop(call)
    if loop is None or module.loop(kept) is not loop:
        return False
    return any(isinstance(each.ctx, ast.Load) and loop.lineno <= each.lineno < kept.lineno for each in uses)
