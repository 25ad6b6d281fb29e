# SPDX-License-Identifier: Apache-2.0
"""A running total that keeps every graph."""

import ast
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import BUG, QUESTION, RISK, At, SourceCheck
from truestep.doctor.source.arguments import parameters_given
from truestep.doctor.source.libraries import losses_given_back
from truestep.doctor.source.loaders import goes_over_batches
from truestep.doctor.source.loss_modules import is_without_grad
from truestep.doctor.source.losses import loses_graph
from truestep.doctor.source.memoized_walk import answered_once
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Function, dotted_name, given_to, walk
from truestep.doctor.source.per_batch_functions import is_once_for_each_batch, outlives_its_call
from truestep.doctor.source.protocol_calls import Protocol
from truestep.doctor.source.rewriting import Edits, insert_behind
from truestep.doctor.source.value_origins import argument, literal, resolve_expression

Around = ast.For | ast.While | ast.FunctionDef | ast.AsyncFunctionDef  # what runs again and again
_DEEP = 3  # sums of sums
_LERP = 3  # arguments of torch.lerp
_FEW = 100  # graphs that no memory notices, once their step is over

_NODES = "backward() frees its tensors, but its nodes stay until the total begins anew."


class LossSummedWithGraph(SourceCheck):
    """The loss tensor itself is added to a running total, or put in a list.

    Why: the total, or the list, keeps the graph of every step alive; memory grows until it is full.

    Bad:
        total = 0
        for x, y in loader:
            loss = F.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss  # here

    Good:
        total = 0
        for x, y in loader:
            loss = F.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.detach()

    Fix: keep loss.detach() (or loss.item(), which waits for the GPU).

    Evidence: corpus, 186 repositories, beds A, B, C, D, E, F, G, H, I, K, M, O, P, Q, R, S, T, U, V, W, X, Y:
    99 true, 28 debatable, 16 false.
    """

    code = "MEM001"
    words = ("backward", "training_step", "compute_loss")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report `total += loss` and `losses.append(loss)` in the loop, or in the step, of that loss's backward()."""
        for node, loop in _accumulations_in_training(module):
            stored = self._loss_in_value(module, _value_stored(node), loop)
            if isinstance(node, ast.Call) and _is_append_of_own_class(module, node):
                continue
            if (
                stored is not None
                and self._is_accumulated_across_steps(module, node, loop)
                and not _is_detached_before(module, stored)
            ):
                is_total = (isinstance(node, ast.Assign) and not _is_indexed_assignment(node)) or (
                    isinstance(node, ast.AugAssign) and not isinstance(node.value, (ast.List, ast.Tuple))
                )
                if is_total and is_without_grad(module, node):
                    continue  # a sum made there has no graph
                what = "added to a total" if is_total else "put in a list"
                told = dotted_name(stored) or ast.unparse(stored)
                is_short = _is_over_few_epochs(module, loop) or _is_emptied_elsewhere(module, node, loop)
                in_list = QUESTION if is_short else RISK
                if is_total and _is_reset_each_pass(module, node, loop) and not _keeps_graph(module, loop):
                    yield At(node, f"{told!r} is {what} with its graph: {_NODES}", RISK)
                else:
                    yield At(node, f"{told!r} is {what} with its graph.", BUG if is_total else in_list)

        yield from self._given_to_totals(module)

    def _given_to_totals(self, module: SourceModule) -> Iterator[At]:
        """Report `meter.update(loss, n)` where the method of the program adds what it is given to an attribute as it is."""
        for call in module.all(ast.Call):
            loop = module.loop(call)
            if not isinstance(loop, Around) or not _has_backward(module, loop):
                continue
            function = module.functions.target(call)
            if function is None:
                continue
            for given in given_to(call):
                kept = self._loss_in_value(module, given, loop)
                if kept is not None and (
                    added := _adds_as_it_is(module, function, parameters_given(function, call, given))
                ):
                    text = f"{ast.unparse(kept)!r} is given with its graph, which {ast.unparse(added)!r} adds to a total."
                    yield At(call, text, RISK)

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Detach it, where no other branch gives the total a value with a graph."""
        if isinstance(getattr(node, "value", None), ast.IfExp):
            return []
        loops = [each for each in module.ancestors(node) if isinstance(each, Around)]
        stored = _value_stored(node)
        parts = stored.elts if isinstance(stored, (ast.List, ast.Tuple)) else [stored]
        for loop in loops:
            kept = [each for part in parts if (each := self._loss_in_value(module, part, loop)) is not None]
            if kept:
                return [insert_behind(module, each, ".detach()") for each in kept]
        return []

    def _loss_in_value(self, module: SourceModule, value: ast.expr | None, loop: Around) -> ast.expr | None:
        """Return the loss within a value: itself, multiplied (by a batch's size) or divided, or in a tuple."""
        match value:
            case ast.BinOp(op=ast.Mult() | ast.Div()):
                left = self._loss_in_value(module, value.left, loop)
                is_product = isinstance(value.op, ast.Mult)
                return left or (self._loss_in_value(module, value.right, loop) if is_product else None)
            case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Dict(values=parts):
                found = (self._loss_in_value(module, each, loop) for each in parts)
                return next((each for each in found if each is not None), None)
            case ast.Name() | ast.Attribute() | ast.Call():
                return value if _is_trained_loss(module, value, loop) else None
        return None

    def _is_accumulated_across_steps(self, module: SourceModule, node: ast.AST, loop: ast.AST) -> bool:
        """What is itself gone backward through, or made anew in the loop, does not pile up."""
        target = _container_of_addition(node)
        if target is not None and _is_bounded_queue(module, target):
            return False
        if isinstance(target, ast.Call) and isinstance(target.func, ast.Attribute):
            return target.func.attr == "setdefault"
        base = target.value if isinstance(target, ast.Subscript) else target
        name = dotted_name(base) if base is not None else None
        if name is None:
            return isinstance(target, ast.Subscript)
        backward = any(
            _name_of_backward_loss(module, call) == name for call in module.method_calls("backward")
        )
        inside = [
            each
            for each in walk(loop)
            if isinstance(each, ast.Assign)
            and each is not node
            and any(dotted_name(t) == name for t in each.targets)
        ]
        return not backward and not inside


def _adds_as_it_is(module: SourceModule, function: Function, names: list[str]) -> ast.AugAssign | None:
    """Return `self.sum += value * n` of a method for a parameter that it gives no other value, such as `value.item()`."""
    home = module.home(function)
    for each in home.inside(function, ast.AugAssign):
        parts = [each.value.left, each.value.right] if isinstance(each.value, ast.BinOp) else [each.value]
        own = [part for part in parts if isinstance(part, ast.Name) and part.id in names]
        anew = [made for part in own for made in home.names.bindings(part) if made.how != "parameter"]
        if own and not anew and isinstance(each.target, ast.Attribute) and not is_without_grad(home, each):
            return each
    return None


def _container_of_addition(node: ast.AST) -> ast.expr | None:
    """Return what something is added to."""
    match node:
        case ast.AugAssign():
            return node.target
        case ast.Assign():
            return node.targets[0]
        case ast.Call(func=ast.Attribute(value=holder)):
            return holder
    return None


def _is_reset_each_pass(module: SourceModule, node: ast.AST, loop: Around) -> bool:
    """Tell a total that begins anew before each pass, in the loop or the function around it."""
    total = _container_of_addition(node)
    if not isinstance(total, ast.Name) or isinstance(loop, Function):
        return False
    loops = [each for each in (loop, *module.ancestors(loop)) if isinstance(each, (ast.For, ast.While))]
    whole = next((each for each in reversed(loops) if goes_over_batches(module, each)), loop)
    begun = [each.node for each in module.names.bindings(total) if whole not in module.ancestors(each.node)]
    around = module.loop(whole) or module.scope(whole)  # an epoch's function, where its epochs are elsewhere
    return around is not module.tree and any(around in module.ancestors(each) for each in begun)


def _keeps_graph(module: SourceModule, loop: Around) -> bool:
    """Tell a loop in which a backward frees nothing: `retain_graph=True`, or a graph of the gradients."""
    words = ("retain_graph", "create_graph")
    calls = [each for each in module.inside(loop, ast.Call) if Protocol(module).loss_taken(each) is not None]
    given = [argument(each, None, word) for each in calls for word in words]
    return any(each is not None and literal(module, each) is not False for each in given)


def _is_bounded_queue(module: SourceModule, holder: ast.expr) -> bool:
    """Tell a queue that drops the oldest."""
    made = module.definitions(holder)
    return bool(made) and all(
        isinstance(each, ast.Call)
        and (module.qualify(each.func) or "") == "collections.deque"
        and argument(each, 1, "maxlen") is not None
        for each in made
    )


def _is_emptied_elsewhere(module: SourceModule, node: ast.AST, around: Around) -> bool:
    """Tell a list of an object that another of its methods, such as a library's at an epoch's end, empties."""
    holder, owner = _container_of_addition(node), module.parents.get(around)
    name = dotted_name(holder) if holder is not None else None
    if name is None or not isinstance(around, Function) or not isinstance(owner, ast.ClassDef):
        return False
    begun = module.classes.method(owner, "__init__")
    cleared = [each.func for each in module.inside(owner, ast.Call)]
    if any(
        isinstance(each, ast.Attribute) and each.attr == "clear" and dotted_name(each.value) == name
        for each in cleared
    ):
        return True
    anew = [
        each
        for each in module.inside(owner, ast.Assign)
        if any(dotted_name(one) == name for one in each.targets)
    ]
    return any(module.scope(each) is not begun and each is not node for each in anew)


def _is_over_few_epochs(module: SourceModule, loop: Around) -> bool:
    """Tell a loop over so few epochs, each of which trains in a loop of its own."""
    rounds = loop.iter if isinstance(loop, ast.For) else None
    counts = [each for each in walk(rounds) if isinstance(each, ast.Call)] if rounds is not None else []
    ends = [
        each.args[-1] for each in counts if dotted_name(each.func) == "range" and len(each.args) in (1, 2)
    ]
    end = literal(module, ends[0]) if len(ends) == 1 else None
    trained = [
        each for each in module.inside(loop, ast.Call) if Protocol(module).loss_taken(each) is not None
    ]
    is_outer = bool(trained) and all(module.loop(each) is not loop for each in trained)
    return is_outer and module.loop(loop) is None and isinstance(end, int) and end <= _FEW


def _is_append_of_own_class(module: SourceModule, append: ast.Call) -> bool:
    """Tell `meter.append(loss)`, or that of an item, of a class of the program: what it keeps is its own affair."""
    holder = append.func.value if isinstance(append.func, ast.Attribute) else append
    if module.classes.of(holder) is not None:
        return True
    whole = module.definitions(holder.value) if isinstance(holder, ast.Subscript) else []
    items = [part for each in whole if isinstance(each, ast.Dict) for part in each.values]
    return any(module.classes.of(each) is not None for each in items)


def _is_detached_before(module: SourceModule, stored: ast.expr) -> bool:
    """Tell whether the name was given the loss without its graph before, be it only where it went backward."""
    values = module.definitions(stored)
    return any(each is not None and _has_lost_graph(module, each, dotted_name(stored)) for each in values)


def _has_lost_graph(module: SourceModule, value: ast.expr, name: str | None) -> bool:
    """Tell `loss.item()` and what is computed of it: `loss.item() * len(x)`, `float(loss) / n`."""
    uses = [each for each in walk(value) if isinstance(each, ast.expr) and dotted_name(each) == name]
    return loses_graph(value) or (
        bool(uses) and all(_is_converted_to_number(module, each, value) for each in uses)
    )


def _is_converted_to_number(module: SourceModule, use: ast.expr, whole: ast.expr) -> bool:
    """Tell whether a call around a use of a loss, within an expression, leaves the graph behind."""
    around = [use]
    while around[-1] is not whole and isinstance(above := module.parents[around[-1]], ast.expr):
        around.append(above)
    return any(loses_graph(each) or _is_float_or_int_call(each) for each in around)


def _is_float_or_int_call(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and dotted_name(node.func) in ("float", "int")


def _name_of_backward_loss(module: SourceModule, call: ast.Call) -> str | None:
    loss = Protocol(module).loss_taken(call)
    return dotted_name(loss) if loss is not None else None


def _accumulations_in_training(module: SourceModule) -> Iterator[tuple[ast.AST, Around]]:
    """Yield what adds to a total or a list, with the innermost loop around it, or the step, that goes backward."""
    adds = [each for each in module.all(ast.AugAssign) if isinstance(each.op, ast.Add)]
    sums = [each for each in module.all(ast.Assign) if _value_added_to_total(each) is not None]
    items = [each for each in module.all(ast.Assign) if _is_indexed_assignment(each)]
    for node in [*adds, *sums, *items, *module.method_calls("append")]:
        around = next(
            (each for each in module.ancestors(node) if _is_training_loop_or_step(module, each, node)), None
        )
        if isinstance(around, Around):
            yield node, around


def _is_training_loop_or_step(module: SourceModule, around: ast.AST, node: ast.AST) -> bool:
    """Tell the loop of a loss's backward, or the function of one batch, which has none, that something is kept in."""
    if isinstance(around, (ast.For, ast.While)):
        return module.scope(around) is module.scope(node) and _has_backward(module, around)
    holder = _container_of_addition(node)
    if not isinstance(around, Function) or around is not module.scope(node) or holder is None:
        return False
    calls = [
        each for each in module.inside(around, ast.Call) if Protocol(module).loss_taken(each) is not None
    ]
    in_loop = any(module.scope(each) is around for call in [node, *calls] if (each := module.loop(call)))
    is_step = not in_loop and (calls or losses_given_back(module, around))
    return bool(is_step) and is_once_for_each_batch(module, around) and outlives_its_call(module, holder)


def _is_indexed_assignment(node: ast.Assign) -> bool:
    """Tell `history[step] = x`, under another key each time."""
    target = node.targets[0]
    return isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Name)


def _value_added_to_total(node: ast.Assign) -> ast.expr | None:
    """Return x of `total = total + x`, `mean = 0.9 * mean + 0.1 * x` and the like."""
    return _other_operand_of_total(node.value, ast.unparse(node.targets[0]))


def _other_operand_of_total(value: ast.expr, total: str) -> ast.expr | None:
    """Return what arithmetic adds to the old value of a total, which keeps its graph there; None where it does not."""
    match value:
        case ast.IfExp(body=first, orelse=second):
            return _other_operand_of_total(first, total) or _other_operand_of_total(second, total)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=right):
            for side, other in ((left, right), (right, left)):
                if _carries_old_total(side, total):
                    return (
                        _other_operand_of_total(other, total) if _carries_old_total(other, total) else other
                    )
        case ast.BinOp(left=left, op=ast.Mult() | ast.Div(), right=right):
            return _other_operand_of_total(left, total) or _other_operand_of_total(right, total)
        case ast.Call(func=ast.Attribute(value=owner, attr="lerp"), args=[first, *others]):
            old, new = (owner, first) if len(others) < _LERP - 1 else (first, others[0])
            return new if _carries_old_total(old, total) else None
    return None


def _carries_old_total(value: ast.expr, total: str) -> bool:
    """Whether the old value of a total is in what arithmetic makes of it, and no call has cut it off."""
    if isinstance(value, ast.BinOp):
        return _carries_old_total(value.left, total) or _carries_old_total(value.right, total)
    return isinstance(value, ast.Name | ast.Attribute | ast.Subscript) and ast.unparse(value) == total


def _value_stored(node: ast.AST) -> ast.expr | None:
    if isinstance(node, ast.AugAssign):
        return _other_operand_of_total(node.value, ast.unparse(node.target)) or node.value
    if isinstance(node, ast.Assign):
        return node.value if _is_indexed_assignment(node) else _value_added_to_total(node)
    return node.args[0] if isinstance(node, ast.Call) and node.args else None


@answered_once
def _has_backward(module: SourceModule, loop: Around) -> bool:
    """Tell whether a loss goes backward in a loop, be it in a function that is called there."""
    return bool(_names_of_backward_losses(module, loop)) or any(
        _returns_loss_after_backward(module, each) for each in module.inside(loop, ast.Call)
    )


def _names_of_backward_losses(module: SourceModule, node: ast.AST) -> set[str]:
    """Return the names on which backward() is called in a loop or a function, and of the terms that they are sums of."""
    key = (_names_of_backward_losses, node)
    if key not in module.remembered:
        scope = node if isinstance(node, Function) else module.scope(node)
        found: set[str] = set()
        for call in module.inside(node, ast.Call):
            loss = Protocol(module).loss_taken(call)
            if loss is not None and module.home(call).scope(call) is scope:
                found |= _names_of_loss_terms(module, loss)
        given = losses_given_back(module, node) if isinstance(node, Function) else []
        module.remembered[key] = found.union(*(_names_of_loss_terms(module, each) for each in given))
    names: set[str] = module.remembered[key]
    return names


def _names_of_loss_terms(module: SourceModule, loss: ast.expr, depth: int = 0) -> set[str]:
    given, loss = loss, _unscaled_loss(module, loss)
    found = {name for name in (dotted_name(given), dotted_name(loss)) if name is not None}
    values = [loss] if isinstance(loss, ast.BinOp) else module.definitions(loss) if found else []
    for value in values if depth < _DEEP else ():
        if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
            found |= _names_of_loss_terms(module, value.left, depth + 1) | _names_of_loss_terms(
                module, value.right, depth + 1
            )
    return found


def _unscaled_loss(module: SourceModule, loss: ast.expr) -> ast.expr:
    """Return the loss of `scaler.scale(loss)`, itself or by a name: it is computed from the same graph."""
    return Protocol(module).scaled(resolve_expression(module, loss)) or loss


def _is_trained_loss(module: SourceModule, value: ast.expr, loop: Around) -> bool:
    if isinstance(value, ast.Call):
        return _returns_loss_after_backward(module, value)
    if dotted_name(value) in _names_of_backward_losses(module, loop):
        return not isinstance(value, ast.Name) or not _is_reassigned_after_backward(module, value, loop)
    made = module.resolver.reaching(value) if isinstance(value, ast.Name) else []
    values = [each.value for each in made if each.how == "assign"]
    return bool(values) and all(
        isinstance(each, ast.Call) and _returns_loss_after_backward(module, each) for each in values
    )


def _is_reassigned_after_backward(module: SourceModule, value: ast.Name, loop: Around) -> bool:
    """Tell a name that is given another value behind the backward: `loss = total / len(loader)`."""
    taken = [Protocol(module).loss_taken(each) for each in module.inside(loop, ast.Call)]
    taken += losses_given_back(module, loop) if isinstance(loop, Function) else []
    same = [each for each in taken if isinstance(each, ast.Name) and each.id == value.id]
    backward = {each for name in same for each in _assignments_behind_name(module, name)}
    return bool(backward) and backward.isdisjoint(_assignments_behind_name(module, value))


def _assignments_behind_name(module: SourceModule, name: ast.Name) -> Iterator[ast.AST]:
    """Yield what gives a name its value where it is read, be it by way of the name itself: `loss = loss * weight`."""
    waiting, seen = [name], set[ast.AST]()
    while waiting:
        for made in module.resolver.reaching(waiting.pop()):
            if made.node in seen:
                continue
            seen.add(made.node)
            yield made.node
            parts = walk(made.value) if made.value is not None else []
            waiting += [each for each in parts if isinstance(each, ast.Name) and each.id == name.id]


def _returns_loss_after_backward(module: SourceModule, call: ast.Call) -> bool:
    """Tell whether a function of the program goes backward and then gives back that very loss, as a step its closure's."""
    function = module.functions.target(call) or Protocol(module).closure(call)
    results = module.functions.results(function)
    if function is None or not results:
        return False
    names = _names_of_backward_losses(module, function)
    return all(dotted_name(each) in names and not _is_detached_before(module, each) for each in results)
