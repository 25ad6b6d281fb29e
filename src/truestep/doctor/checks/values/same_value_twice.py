# SPDX-License-Identifier: Apache-2.0
"""`torch.where(c, x, x)`, `x - x`."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import QUESTION, At, SourceCheck
from truestep.doctor.library.losses import losses
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted, method_of, receiver_of, walk

# by the place of the first of the two
_OF_TWO = dict.fromkeys((*losses(target="numbers shares"), "min", "max", "minimum", "maximum"), 0) | {
    "where": 1
}

_COUNTS = ("max", "min", "maximum", "minimum", "fmax", "fmin", "add")


class SameValueTwice(SourceCheck):
    """Two different values are meant, and the same one is given twice.

    Why: the difference is always zero, the choice is none, the smaller of both is either.

    Bad:
        first, second = net(x), net(x.flip(0))
        loss = torch.where(first > second, first - second, first - second).mean()  # here

    Good:
        first, second = net(x), net(x.flip(0))
        loss = torch.where(first > second, first - second, second - first).mean()

    Fix: name the other value.

    Evidence: 186 repositories, beds B, D, K, M, O, P, Q: 2 true, 6 debatable, 2 false.
    """

    code = "VALUE004"

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report differences, choices and comparisons of a value with itself, through a name just given to it."""
        if "torch" not in module.text:
            return
        for sides in module.all(ast.BinOp):
            if isinstance(sides.op, ast.Sub) and _is_read_only(sides.left) and _is_read_only(sides.right):
                is_zero_made = isinstance(
                    module.parents.get(sides), (ast.Call, ast.Attribute)
                )  # (x - x).sum()
                is_same = _meaning(module, sides.left) == _meaning(module, sides.right)
                if is_same and not is_zero_made and not _is_start(module, sides):
                    yield At(sides, f"{ast.unparse(sides.left)} minus itself is always zero.")
        for call in module.all(ast.Call):
            name = module.qualify(call.func) or ""
            start = _OF_TWO.get(name.rsplit(".", 1)[-1])
            given = call.args[start : start + 2] if start is not None and name.startswith("torch.") else []
            if _is_asserted(module, call):
                continue
            if len(given) == 2 and ast.dump(given[0]) == ast.dump(given[1]) and _is_read_only(given[0]):
                yield At(call, f"Both values are {ast.unparse(given[0])}.")
        for choice in module.all(ast.IfExp):
            if ast.dump(choice.body) == ast.dump(choice.orelse):
                # what was meant is out of sight: often nothing but this value is left of two
                yield At(choice, f"Either way it is {ast.unparse(choice.body)}.", QUESTION)


def _is_start(module: SourceModule, zero: ast.BinOp) -> bool:
    """Tell zeros of a tensor's shape under a name that a loop below gives a new value made of the old: it counts from them."""
    statement = module.statement(zero)
    target = statement.targets[0] if isinstance(statement, ast.Assign) and statement.value is zero else None
    if not isinstance(target, ast.Name):
        return False
    scope = module.scope(zero)
    kept = (
        [*module.stores] if isinstance(scope, ast.Module) else module.inside(scope, ast.Assign, ast.AugAssign)
    )
    return any(_goes_on(module, each, target, statement) for each in kept)


def _goes_on(module: SourceModule, kept: ast.stmt, name: ast.Name, start: ast.stmt) -> bool:
    """Tell `name = torch.max(name, more)` and `name += more` in a loop that begins behind the start."""
    loop = module.loop(kept)
    if loop is None or loop.lineno < start.lineno or module.scope(kept) is not module.scope(start):
        return False
    if isinstance(kept, ast.AugAssign):
        return dotted(kept.target) == name.id and isinstance(kept.op, ast.Add)
    targets = [dotted(each) for each in kept.targets] if isinstance(kept, ast.Assign) else []
    return name.id in targets and isinstance(kept, ast.Assign) and name.id in _counted(kept.value)


def _counted(value: ast.expr) -> list[str | None]:
    """Return the names of what is added, and of that of which the greater or smaller is taken."""
    if isinstance(value, ast.BinOp):
        return [dotted(value.left), dotted(value.right)] if isinstance(value.op, ast.Add) else []
    if not isinstance(value, ast.Call) or method_of(value) not in _COUNTS:
        return []
    given = [receiver_of(value), *value.args]
    return (
        [dotted(each) for each in given if each is not None] if len(value.args) + len(value.keywords) else []
    )


def _is_asserted(module: SourceModule, call: ast.Call) -> bool:
    """Tell a value in a test, which says what a loss gives for a perfect answer."""
    above = [each for each in module.ancestors(call) if isinstance(each, (ast.Assert, ast.FunctionDef))]
    return any(isinstance(each, ast.Assert) or each.name.startswith("test_") for each in above)


def _is_read_only(node: ast.expr) -> bool:
    """Tell whether an expression has the same value each time, and is no number."""
    return not isinstance(node, ast.Constant) and not any(
        isinstance(each, (ast.Call, ast.NamedExpr, ast.Await, ast.Yield)) for each in walk(node)
    )


def _meaning(module: SourceModule, node: ast.expr) -> str:
    """Return the text of an expression; of a name, what the statement just before made it."""
    if isinstance(node, ast.Name):
        bindings = module.resolver.reaching(node)
        only = bindings[0] if len(bindings) == 1 else None
        if only is not None and only.how == "assign" and isinstance(only.value, ast.Attribute):
            body = getattr(module.parents.get(only.node), "body", [])
            statement = module.statement(node)
            if statement in body and only.node in body and body.index(statement) == body.index(only.node) + 1:
                return ast.unparse(only.value)
    return ast.unparse(node)
