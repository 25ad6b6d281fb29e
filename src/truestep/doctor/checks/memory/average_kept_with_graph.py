# SPDX-License-Identifier: Apache-2.0
"""A running average of weights that keeps the graph of every step."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.library.operations import CUTS, SAME_NUMBERS
from truestep.doctor.source.behind import is_without_grad
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Function, walk
from truestep.doctor.source.resolving import MAX_DEPTH

_LEARNS = ("backward", "manual_backward", "step", "update")
_IN_PLACE = ("add_", "sub_", "mul_", "lerp_", "copy_")
_AVERAGES = {
    *_IN_PLACE,
    *SAME_NUMBERS,
    "add",
    "sub",
    "mul",
    "div",
    "lerp",
} - CUTS  # a sum over a weight is a penalty
_PLAIN = {"staticmethod", "classmethod"}
_COMPREHENSIONS = (ast.DictComp, ast.ListComp)


class AverageKeptWithGraph(SourceCheck):
    """A running average is computed from itself and the parameters, with gradients on.

    Why: each average has the one before in its graph: memory grows with every step.

    Bad:
        ema = {name: weight.detach().clone() for name, weight in net.named_parameters()}
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()
            for name, weight in net.named_parameters():
                ema[name] = 0.99 * ema[name] + 0.01 * weight  # here

    Good:
        ema = {name: weight.detach().clone() for name, weight in net.named_parameters()}
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()
            with torch.no_grad():
                for name, weight in net.named_parameters():
                    ema[name].lerp_(weight, 0.01)

    Fix: average under torch.no_grad(), and begin with weight.detach().clone().
    """

    code = "MEM007"
    words = ("parameters(",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a place that takes up itself and a parameter, both with their graphs, each time a training goes round."""
        if module.called_anywhere("set_grad_enabled"):
            return
        loops: list[ast.For | ast.comprehension] = [*module.all(ast.For), *module.all(ast.comprehension)]
        for loop in loops:
            weights = _weights(loop.target, loop.iter)
            holder = module.statement(loop) if isinstance(loop, ast.comprehension) else loop
            for node in _moves(module, holder) if weights else ():
                kept = _grown(node, weights)
                if kept is not None and not _is_cut(module, node) and self._repeats(module, node, kept):
                    yield At(node, f"{ast.unparse(kept)!r} keeps the graph of every step.", RISK)

    def _repeats(self, module: SourceModule, node: ast.AST, kept: ast.expr) -> bool:
        """Tell whether a training goes round it, with gradients on, and nothing there begins the average anew."""
        root = _root(kept)
        scope = module.scope(node)
        loops = [each for each in module.ancestors(node) if isinstance(each, ast.For | ast.While)]
        around = [each for each in loops if module.scope(each) is scope and _learns(module, each)]
        bindings = module.bindings(root) if root is not None else []
        begun = [each.node for each in bindings if each.node is not node and each.how != "parameter"]
        if around:
            return not any(inner in walk(around[-1]) for inner in begun)
        inside = isinstance(scope, Function) and any(inner in walk(scope) for inner in begun)
        return isinstance(scope, Function) and not inside and _is_called_in_training(module, scope)


def _weights(target: ast.expr, source: ast.expr) -> set[str]:
    """Return the names that a loop gives parameters to."""
    if not isinstance(source, ast.Call):
        return set()
    parts = target.elts if isinstance(target, ast.Tuple | ast.List) else []
    name = source.func.attr if isinstance(source.func, ast.Attribute) else getattr(source.func, "id", "")
    if name == "enumerate" and len(parts) == 2 and source.args:
        return _weights(parts[1], source.args[0])
    if name == "zip" and len(parts) == len(source.args):
        return set().union(*(_weights(*each) for each in zip(parts, source.args, strict=True)))
    weight = (
        target
        if name == "parameters"
        else parts[1]
        if name == "named_parameters" and len(parts) == 2
        else None
    )
    return {weight.id} if isinstance(weight, ast.Name) else set()


def _moves(module: SourceModule, holder: ast.AST) -> Iterator[ast.Assign | ast.AugAssign | ast.Call]:
    if isinstance(holder, ast.For):
        yield from module.inside(holder, ast.AugAssign)
        for call in module.inside(holder, ast.Call):
            outer = module.parents.get(call)
            if isinstance(outer, ast.Expr):
                yield call  # the whole chain: `kept.mul_(0.99).add_(weight, alpha=0.01)`
    yield from module.inside(holder, ast.Assign)


def _grown(node: ast.Assign | ast.AugAssign | ast.Call, weights: set[str]) -> ast.expr | None:
    """Return the place that is given what is computed from itself and a parameter, if autograd follows both."""
    if isinstance(node, ast.Assign):
        kept, made = node.targets[0], _elements(node.value)
        read = [ast.unparse(each) for each in _carried(made)]
        again = ast.unparse(kept) in read or _goes_through(node.value, kept, read)
    elif isinstance(node, ast.AugAssign):
        kept, read, again = node.target, [ast.unparse(each) for each in _carried(node.value)], True
    else:
        place = _changed(node)
        if place is None:
            return None
        kept, read, again = place, [ast.unparse(each) for each in _carried(node)], True
    own = ast.unparse(kept)
    is_place = isinstance(kept, ast.Name | ast.Attribute | ast.Subscript)
    is_rebound = isinstance(node, ast.Assign) and own in weights
    is_cut = isinstance(kept, ast.Attribute) and kept.attr in CUTS
    taken = weights & set(read) - {own}
    return kept if again and taken and is_place and not is_rebound and not is_cut else None


def _elements(value: ast.expr) -> ast.expr:
    return (
        value.value
        if isinstance(value, ast.DictComp)
        else value.elt
        if isinstance(value, ast.ListComp)
        else value
    )


def _goes_through(value: ast.expr, kept: ast.expr, read: list[str]) -> bool:
    """Tell `kept = [0.9 * old + 0.1 * new for old, new in zip(kept, ...)]`, and the same by key."""
    if not isinstance(value, _COMPREHENSIONS):
        return False
    own = ast.unparse(kept)
    if any(each.startswith(f"{own}[") for each in read):
        return True
    source, target = value.generators[0].iter, value.generators[0].target
    parts = target.elts if isinstance(target, ast.Tuple) else []
    given = source.args if isinstance(source, ast.Call) else []
    pairs = zip(parts, given, strict=False)
    return any(ast.unparse(each) == own and ast.unparse(part) in read for part, each in pairs)


def _changed(call: ast.Call) -> ast.expr | None:
    """Return what a chain of methods changes in place, if none on the way to it makes something else of it."""
    current: ast.expr = call
    while isinstance(current, ast.Call):
        if not isinstance(current.func, ast.Attribute) or current.func.attr not in _IN_PLACE:
            return None
        current = current.func.value
    return current


def _carried(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the names and places that a value is computed from, where its graph goes through them."""
    match node:
        case ast.Attribute():
            if node.attr not in CUTS:
                yield node
        case ast.Name() | ast.Subscript():
            yield node
        case ast.BinOp():
            yield from _carried(node.left)
            yield from _carried(node.right)
        case ast.UnaryOp():
            yield from _carried(node.operand)
        case ast.Call(func=ast.Attribute(attr=method)) if method in _AVERAGES:
            for each in (node.func.value, *node.args, *(word.value for word in node.keywords)):  # type: ignore[attr-defined]
                yield from _carried(each)


def _is_cut(module: SourceModule, node: ast.AST) -> bool:
    """Tell whether gradients are off there, or what is kept loses its graph in the lines beside it."""
    block = module.parents.get(module.statement(node))
    beside = (
        [each for each in module.inside(block, ast.Call) if isinstance(each.func, ast.Attribute)]
        if block
        else []
    )
    return is_without_grad(module, node) or any(each.func.attr == "detach_" for each in beside)  # type: ignore[attr-defined]


def _root(kept: ast.expr) -> ast.Name | None:
    while isinstance(kept, ast.Attribute | ast.Subscript):
        kept = kept.value
    return kept if isinstance(kept, ast.Name) else None


def _learns(module: SourceModule, loop: ast.AST) -> bool:
    calls = (each.func for each in module.inside(loop, ast.Call))
    return any(isinstance(each, ast.Attribute) and each.attr in _LEARNS for each in calls)


def _is_called_in_training(module: SourceModule, function: Function, depth: int = 0) -> bool:
    """Tell whether a call of a function stands in a loop that trains, with gradients on there and on the way."""
    ours = getattr(function, "decorator_list", [])
    if depth > MAX_DEPTH or any(getattr(each, "id", "") not in _PLAIN for each in ours):
        return False
    for call in module.callers(function):
        home = module.home(call)
        if is_without_grad(home, call):
            continue
        scope = home.scope(call)
        loops = [each for each in home.ancestors(call) if isinstance(each, ast.For | ast.While)]
        if any(home.scope(each) is scope and _learns(home, each) for each in loops):
            return True
        if isinstance(scope, Function) and _is_called_in_training(home, scope, depth + 1):
            return True
    return False
