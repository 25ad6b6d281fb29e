# SPDX-License-Identifier: Apache-2.0
"""A gradient kept by reference, then cleared in place."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted
from truestep.doctor.source.values import constant


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
        yield from self._listed(module)

    def _listed(self, module: SourceModule) -> Iterator[At]:
        """Report gradients that are gathered in a list, where a zero_grad() follows before the list is read."""
        for kept in module.all(ast.Assign):
            target, value = kept.targets[0], kept.value
            if (
                not isinstance(target, ast.Name)
                or not isinstance(value, ast.ListComp)
                or not _gathers(module, value)
            ):
                continue
            for call in module.method_calls("zero_grad"):
                if module.scope(call) is not module.scope(kept) or is_forgetting(call):
                    continue
                if _goes_on_to(module, kept, call) and _is_read_after(module, target, kept, call):
                    text = f"{target.id!r} holds the gradients' own memory, which zero_grad() clears up to torch 1.13."
                    yield At(kept, text, RISK)
                    break


def _gathers(module: SourceModule, value: ast.ListComp) -> bool:
    """Tell `[p.grad for p in net.parameters()]`, be it as Variables or without a graph."""
    made = value.elt
    while isinstance(made, ast.Call) and module.qualify(made.func) == "torch.autograd.Variable" and made.args:
        made = made.args[0]
    return _gradient(made) is not None


def is_forgetting(call: ast.Call) -> bool:
    """Tell zero_grad(set_to_none=True): new memory is used from there on."""
    return bool(call.args) or any(constant(word.value) is True for word in call.keywords)


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
