# SPDX-License-Identifier: Apache-2.0
"""A term of a loss that nothing can learn from."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.library.operations import operations
from truestep.doctor.source.behind import is_without_grad
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import stored_in, walk

_SHAPING = operations(
    numbers="kept home moved rounded averaged reduced picked computed logarithm", graph="kept"
)
_STEPS = 3  # from what goes backward to a sum that it is made of
_LOSS = re.compile(r"(^|_)loss(es)?(_|\d|$)")


class TermWithoutGradient(SourceCheck):
    """A loss that goes into backward() is made of values without a gradient alone: computed under no_grad(), or detached.

    Why: the number is there and moves, and changes no weight.

    Bad:
        with torch.no_grad():
            gate = torch.sigmoid(net(x))
        value = net(x).pow(2).mean()
        gate_loss = (gate * value.detach()).mean()  # here
        loss = F.cross_entropy(net(x), y) + gate_loss
        loss.backward()

    Good:
        gate = torch.sigmoid(net(x))
        value = net(x).pow(2).mean()
        gate_loss = (gate * value.detach()).mean()
        loss = F.cross_entropy(net(x), y) + gate_loss
        loss.backward()

    Fix: compute what is to be trained outside of no_grad().
    """

    code = "GRAD049"
    words = ("no_grad",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report such a product, one factor of which was made under no_grad, that is added to what goes backward."""
        for node in module.all(ast.Assign):
            name = ast.unparse(node.targets[0])
            if not _LOSS.search(name) or is_without_grad(module, node):
                continue
            factors = list(_factors(module, node.value))
            cut = [_is_cut(module, each) for each in factors]
            if cut and all(each is not None for each in cut) and "no_grad" in cut:
                if _is_trained_on(module, node, name):
                    at = cut.index("no_grad")
                    text = (
                        f"{ast.unparse(factors[at])!r} was computed under no_grad(): {name!r} trains nothing."
                    )
                    yield At(node, text, RISK)


def _factors(module: SourceModule, node: ast.expr) -> Iterator[ast.expr]:
    """Yield what a value is a product of, through what only shapes or averages it."""
    match node:
        case ast.UnaryOp():
            yield from _factors(module, node.operand)
        case ast.BinOp(op=ast.Mult() | ast.Div()):
            yield from _factors(module, node.left)
            yield from _factors(module, node.right)
        case ast.Call(func=ast.Attribute(attr=method)) if method in _SHAPING:
            yield from _factors(module, node.func.value)  # type: ignore[attr-defined]
        case ast.Constant():
            pass
        case _:
            yield node


def _is_cut(module: SourceModule, node: ast.expr) -> str | None:
    """Return why a factor has no gradient; None where it may have one."""
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("detach", "item")
    ):
        return "detached"
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) and isinstance(node.left, ast.Constant):
        return "a mask" if isinstance(node.right, ast.Name) else None
    values = module.definitions(node)
    if values and all(each is not None and is_without_grad(module, each) for each in values):
        return "no_grad"
    return None


def _is_trained_on(module: SourceModule, node: ast.Assign, name: str) -> bool:
    """Tell whether the value is added to others in a sum that goes backward in this function, or goes itself."""
    scope = module.scope(node)
    sums = [each for each in module.stores if module.scope(each) is scope]
    for call in module.method_calls("backward"):
        if module.scope(call) is not scope:
            continue
        parts = _places(call)
        for _ in range(_STEPS):
            parts |= {
                part for each in sums if ast.unparse(stored_in(each)) in parts for part in _places(each.value)
            }
        if name in parts:
            return True
    return False


def _places(node: ast.AST) -> set[str]:
    return {
        ast.unparse(each) for each in walk(node) if isinstance(each, ast.Name | ast.Attribute | ast.Subscript)
    }
