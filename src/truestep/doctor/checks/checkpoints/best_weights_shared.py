# SPDX-License-Identifier: Apache-2.0
"""The best weights are kept by their dict, which training goes on to change; or those to begin with are not kept at all."""

import ast
from collections.abc import Iterator
from functools import partial
from itertools import takewhile
from typing import Any

from truestep.doctor.check import BUG, QUESTION, RISK, At, SourceCheck
from truestep.doctor.source.arguments import argument_for
from truestep.doctor.source.cached_questions import imported_names
from truestep.doctor.source.counters import counted_loops, is_model_made_anew
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import (
    Function,
    dotted_name,
    is_none,
    last_part,
    method_of,
    receiver_of,
    walk,
)
from truestep.doctor.source.rewriting import Edits, SourceRewriteError, node_text, replace_node
from truestep.doctor.source.shared_weights import GIVING_WEIGHTS, KeptWeights, kept_weights, kind_of_owner
from truestep.doctor.source.value_origins import constant

_STAYS = ("torch.cuda.", "isinstance", "hasattr", "getattr")  # what these say is the same in each iteration
_WRITTEN = (ast.Constant, ast.Tuple, ast.List, ast.Set)


class BestWeightsShared(SourceCheck):
    """The result of state_dict() is kept in a training loop as it is, to be used after it.

    Why: it holds the parameters themselves, no copies: when training ends the best weights are the last.

    Bad:
        best, best_loss = None, math.inf
        for x, y in loader:
            opt.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            opt.step()
            if loss.item() < best_loss:
                best, best_loss = net.state_dict(), loss.item()  # here
        net.load_state_dict(best)

    Good:
        best, best_loss = None, math.inf
        for x, y in loader:
            opt.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            opt.step()
            if loss.item() < best_loss:
                best, best_loss = copy.deepcopy(net.state_dict()), loss.item()
        net.load_state_dict(best)

    Fix: copy.deepcopy(net.state_dict()), or save it to a file at once. Each part of a cross validation
    begins with a best value of its own.

    Evidence: 186 repositories, beds A, B, D, E, F, G, H, I, P, Q, R, S, T, U, V, W, X, Y: 56 true, 2 debatable,
    5 false.
    """

    code = "SAVE013"
    words = GIVING_WEIGHTS

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report such a dict that a name keeps beyond the iteration of a loop that trains."""
        training = module.program.training_loops()
        for node, text in _bests_of_other_parts(module):
            yield At(node, text, RISK)
        for kept in kept_weights(module):
            around = [each for each in module.ancestors(kept.node) if each in training]
            # what an outer loop makes anew is trained in the inner ones alone
            loops = list(takewhile(partial(_is_model_reused_in_loop, module, kept.model), around))
            if loops:
                is_kept = _is_read_after(module, loops[-1], kept.node, kept.name)
            else:
                is_kept = not around and _is_loaded_later(module, kept.node, kept.name, kept.model)
            is_kept = is_kept or _is_restored_after_training(module, kept, training)
            kind = kind_of_owner(module, kept.model)  # a schedule's and a scaler's are numbers
            if kind not in ("scheduler", "scaler") and is_kept and not _is_filled_anew(module, kept):
                by_count = bool(loops) and _is_kept_periodically(module, loops[-1], kept.node)
                severity = BUG if kind in ("module", "ddp") else RISK
                yield At(kept.node, _sharing_message(kept, kind), QUESTION if by_count else severity)

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Keep a copy, where the file has the module for it."""
        can_be_copied = not isinstance(node, ast.Call) or method_of(node) == "state_dict"
        if (
            "copy" not in imported_names(module) or not can_be_copied
        ):  # what parameters() gives is gone through once
            raise SourceRewriteError
        above = module.parents[node]
        shallow = module.parents[above]  # `net.state_dict().copy()`, a new dict of the same tensors
        is_shallow = (
            isinstance(above, ast.Attribute) and above.attr == "copy" and isinstance(shallow, ast.Call)
        )
        copied = shallow if is_shallow else node
        return [replace_node(module, copied, f"copy.deepcopy({node_text(module, node)})")]


def _sharing_message(kept: KeptWeights, kind: str | None) -> str:
    if kept.node is kept.model:
        return f"{kept.name!r} is the model itself, and no copy: each later step changes it."
    held = "the optimizer's averages" if kind == "optimizer" else "the parameters"
    return f"{kept.name!r} holds {held} themselves: each later step changes it."


def _is_filled_anew(module: SourceModule, kept: KeptWeights) -> bool:
    """Tell a dict that gets another tensor under each of its keys, as a mean over clients or a copy: it is no snapshot."""
    scope = module.scope(kept.node)
    return any(
        isinstance(target, ast.Subscript)
        and dotted_name(target.value) == kept.name
        and isinstance(target.slice, ast.Name)
        and each.lineno > kept.node.lineno
        and module.scope(each) is scope
        for each in module.all(ast.Assign)
        for target in each.targets
    )


def _is_model_reused_in_loop(module: SourceModule, model: ast.expr, loop: ast.AST) -> bool:
    return not is_model_made_anew(module, loop, model)


def _is_restored_after_training(module: SourceModule, kept: KeptWeights, training: set[ast.AST]) -> bool:
    """Tell weights that are kept before a training and loaded into the same model behind it, or before its next round."""
    scope, model = module.scope(kept.node), dotted_name(kept.model)
    loads = [
        each
        for each in module.method_calls("load_state_dict")
        if module.scope(each) is scope and each.lineno > kept.node.lineno and each.args
        if dotted_name(each.func.value) == model  # type: ignore[attr-defined]
        if any(
            dotted_name(part) == kept.name
            and _can_hold_assigned_value(module, part, module.statement(kept.node))
            for part in walk(each.args[0])
            if isinstance(part, ast.expr)
        )
    ]
    if not loads or kind_of_owner(module, kept.model) not in ("module", "ddp"):
        return False
    nodes: list[ast.stmt | ast.expr] = [*module.all(ast.For, ast.While), *module.all(ast.Call)]
    trained = [
        each
        for each in nodes
        if module.scope(each) is scope and each.lineno > kept.node.lineno
        if any(dotted_name(part) == model for part in walk(each))
        and _is_training_loop_or_call(module, each, training)
    ]
    return any(_is_training_before_load(module, each, load, kept) for each in trained for load in loads)


def _is_training_loop_or_call(module: SourceModule, node: ast.AST, training: set[ast.AST]) -> bool:
    """Tell a loop that trains, and a call of a function with one."""
    function = module.functions.target(node) if isinstance(node, ast.Call) else None
    inner = module.home(function).inside(function, ast.For, ast.While) if function is not None else [node]
    return any(each in training for each in inner)


def _is_training_before_load(
    module: SourceModule, trained: ast.AST, load: ast.Call, kept: KeptWeights
) -> bool:
    """Tell whether a training is over when the weights are loaded, maybe the round before in a loop behind what keeps them."""
    if load.lineno > (getattr(trained, "end_lineno", 0) or 0):
        return True
    around = [each for each in module.ancestors(load) if isinstance(each, (ast.For, ast.While))]
    return any(
        each is trained or each in module.ancestors(trained)
        for each in around
        if each not in module.ancestors(kept.node) and not is_model_made_anew(module, each, kept.model)
    )


def _is_kept_periodically(module: SourceModule, loop: ast.AST, call: ast.expr) -> bool:
    """Tell `if epoch % 5 == 0:`: a state of now and then is kept, perhaps the last, and no best one."""
    around = [
        each for each in _conditions_around(module, loop, call) if _can_condition_change(module, loop, each)
    ]
    parts = [part for each in around for part in walk(each)]
    tests = [each for each in parts if isinstance(each, ast.Compare) and not is_none(each.comparators[0])]
    return bool(tests) and all(
        any(counted_loops(module, each) for each in _compared_operands(test)) for test in tests
    )


def _is_kept_once_per_phase(module: SourceModule, loop: ast.AST, call: ast.expr) -> bool:
    """Tell `if phase == "val":` of a loop over phases and no other test: what is kept is the last of each epoch."""
    above, tests = list(module.ancestors(call)), _conditions_around(module, loop, call)
    phases = [
        each for each in above if isinstance(each, ast.For) and isinstance(each.iter, (ast.List, ast.Tuple))
    ]
    names = {dotted_name(each.target) for each in phases}
    return bool(tests) and all(
        isinstance(each, ast.Compare)
        and any(dotted_name(side) in names for side in (each.left, each.comparators[0]))
        and all(
            dotted_name(side) in names or isinstance(side, _WRITTEN)
            for side in (each.left, each.comparators[0])
        )
        for each in tests
    )


def _conditions_around(module: SourceModule, loop: ast.AST, call: ast.expr) -> list[ast.expr]:
    """Return the tests within a loop that decide whether a statement runs."""
    above = list(module.ancestors(call))
    return [each.test for each in above[: above.index(loop)] if isinstance(each, ast.If)]


def _can_condition_change(module: SourceModule, loop: ast.AST, test: ast.expr) -> bool:
    """Tell whether a test may give another answer in a later iteration; how many cards there are stays the same."""
    for each in walk(test):
        if isinstance(each, ast.Call) and not (module.qualify(each.func) or "").startswith(_STAYS):
            return True
        if isinstance(each, ast.Attribute) and (dotted_name(each) or "").startswith("self."):
            return True
        if isinstance(each, ast.Name) and any(
            loop in module.ancestors(one.node) and not _is_device_move_of_name(one.value, each.id)
            for one in module.names.bindings(each)
        ):
            return True
    return False


def _is_device_move_of_name(value: ast.expr | None, name: str) -> bool:
    """Tell `net = net.to(device)`."""
    moved = _object_moved_to_device(value) if isinstance(value, ast.Call) else None
    return moved is not None and dotted_name(moved) == name


def _object_moved_to_device(call: ast.Call) -> ast.expr | None:
    """Return what is moved to a device: `net` of `net.cpu()` and `net.to(device)`."""
    is_move = isinstance(call.func, ast.Attribute) and call.func.attr in ("cpu", "to", "cuda")
    return call.func.value if is_move and isinstance(call.func, ast.Attribute) else None


def _is_moved_and_back(module: SourceModule, loop: ast.AST, call: ast.expr) -> bool:
    """Tell a state that is taken on the CPU, before the model goes back to a card: there it gets new parameters."""
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return False
    block = module.parents[module.statement(call)]
    moves = [
        (each, moved)
        for each in module.inside(loop, ast.Call)
        if (moved := _object_moved_to_device(each)) is not None
        and isinstance(moved, (ast.Name, ast.Attribute))
    ]
    model = call.func.value
    taken = _object_moved_to_device(model) if isinstance(model, ast.Call) else model
    names = (
        {dotted_name(taken), (dotted_name(taken) or "").removesuffix(".module")}
        if taken is not None
        else set()
    )
    mine = [each for each, moved in moves if dotted_name(moved) in names]
    off = [
        each
        for each in mine
        if _is_move_to_cpu(each)
        and (each is model or (block in module.ancestors(each) and each.lineno < call.lineno))
    ]
    return bool(off) and any(each.lineno > call.lineno and not _is_move_to_cpu(each) for each in mine)


def _is_move_to_cpu(call: ast.Call) -> bool:
    assert isinstance(call.func, ast.Attribute)
    return call.func.attr == "cpu" or (bool(call.args) and constant(call.args[0]) == "cpu")


def _compared_operands(test: ast.Compare) -> list[ast.expr]:
    """Return what is compared, and what a remainder is of."""
    left = test.left
    if isinstance(left, ast.BinOp) and isinstance(left.op, ast.Mod):
        left = left.left
    return [left, *test.comparators]


def _is_read_after(module: SourceModule, loop: ast.AST, call: ast.expr, name: str) -> bool:
    """Tell whether the name is read behind the loop, or in a later iteration; not at once, nor under the same test."""
    scope, end = module.scope(call), getattr(loop, "end_lineno", 0)
    block = module.parents[module.statement(call)]
    tests = _conditions_around(module, loop, call)
    if not any(_can_condition_change(module, loop, each) for each in tests) or _is_kept_once_per_phase(
        module, loop, call
    ):
        return False  # it is kept anew in each iteration
    if _is_moved_and_back(module, loop, call):
        return False
    reads = [each for each in module.reads(name) if module.scope(each) is scope or name.startswith("self.")]
    later = [each for each in reads if each.lineno > end and block not in module.ancestors(each)]
    later = [each for each in later if not _is_returned_and_discarded(module, each)]
    return any(_can_hold_assigned_value(module, each, module.statement(call)) for each in later)


def _is_returned_and_discarded(module: SourceModule, read: ast.expr) -> bool:
    """Tell what a function gives back, itself or in a tuple, to callers that keep nothing of it."""
    statement, function = module.statement(read), module.scope(read)
    value = statement.value if isinstance(statement, ast.Return) else None
    if (
        value is None
        or not isinstance(function, Function)
        or read not in [value, *getattr(value, "elts", [])]
    ):
        return False
    calls = module.functions.callers(function)
    return bool(calls) and all(isinstance(module.home(each).parents[each], ast.Expr) for each in calls)


def _is_loaded_later(module: SourceModule, call: ast.expr, target: str, model: ast.expr) -> bool:
    """Tell a method that a training loop calls: under a test it keeps the dict in an attribute, which is loaded elsewhere."""
    method, name = module.enclosing(call, ast.FunctionDef), target.removeprefix("self.")
    if method is None or not target.startswith("self.") or not name.isidentifier():
        return False
    above = list(module.ancestors(call))
    is_tested = any(isinstance(each, ast.If) for each in above[: above.index(method)])
    is_tested = is_tested or any(
        isinstance(each, ast.If) and each.lineno < call.lineno and module.inside(each, ast.Return)
        for each in method.body
    )
    reads = [
        each
        for file in module.program.linked
        for each in file.read_under(name)
        if file.scope(each) is not method
    ]
    is_loaded = any(_is_load_state_dict_argument(module.home(each), each) for each in reads)
    return is_tested and is_loaded and _is_called_in_training(module, method, dotted_name(model))


def _is_load_state_dict_argument(module: SourceModule, read: ast.AST) -> bool:
    above = module.parents[read]
    return isinstance(above, ast.Call) and read in above.args and method_of(above) == "load_state_dict"


def _is_called_in_training(module: SourceModule, method: ast.FunctionDef, model: str | None) -> bool:
    """Tell whether a training loop calls a method, be it through another one of its class, or on an object that it is given."""
    callers = module.functions.callers(method)
    within = {module.enclosing(each, ast.FunctionDef) for each in callers}
    for loop in module.program.training_loops():
        file = module.home(loop)
        calls = file.inside(loop, ast.Call)
        called = {file.functions.target(each) for each in calls} - {None}
        if called & {method, *within}:
            return True
        if not callers and any(_is_given_object_with_model(file, each, method, model) for each in calls):
            return True
    return False


def _is_given_object_with_model(
    module: SourceModule, call: ast.Call, method: ast.FunctionDef, model: str | None
) -> bool:
    """Tell `stopper(loss, net)` of a function that is given the stopper: it is called as this method is, with a model."""
    is_call = isinstance(call.func, ast.Name) and method.name == "__call__"
    receiver = call.func if is_call else receiver_of(call) if method_of(call) == method.name else None
    if not isinstance(receiver, ast.Name) or module.functions.target(call) is not None:
        return False
    is_given = [each.how for each in module.names.bindings(receiver)] == ["parameter"]
    given = argument_for(method, call, model) if model is not None else None
    fits = len(call.args) + len(call.keywords) == len(method.args.args) - 1
    return is_given and fits and given is not None and module.kind(given) in ("module", "ddp")


def _can_hold_assigned_value(module: SourceModule, read: ast.expr, statement: ast.stmt) -> bool:
    """Tell whether a name may still have what a statement gave it: nothing else did on every way."""
    if not isinstance(read, ast.Name) or statement not in [each.node for each in module.names.bindings(read)]:
        return True
    return any(each.node is statement for each in module.resolver.reaching(read))


def _bests_of_other_parts(module: SourceModule) -> Iterator[tuple[ast.If, str]]:
    """Yield where weights are kept by a best value that all parts of a cross validation share; each has a training of its own."""
    for kept in module.all(ast.If):
        parts = [each for each in module.ancestors(kept) if isinstance(each, ast.For) and _is_of_split(each)]
        if not parts or module.loop(kept) is parts[-1] or not isinstance(kept.test, ast.Compare):
            continue
        if not _keeps_weights(kept) or not _trains_anew(module, parts[-1]):
            continue
        stores = [each for each in module.all(ast.Name) if isinstance(each.ctx, ast.Store)]
        for best in (each for each in walk(kept.test) if isinstance(each, ast.Name)):
            made = [each for each in stores if each.id == best.id]
            own = [each for each in made if parts[-1] in module.ancestors(each)]
            if own and len(own) < len(made) and all(kept in module.ancestors(each) for each in own):
                yield (
                    kept,
                    f"{best.id!r} goes on from part to part: one that is harder than those before keeps no weights.",
                )


def _keeps_weights(kept: ast.If) -> bool:
    return any(
        last_part(each.func) in ("save", "state_dict", "deepcopy")
        for each in walk(kept)
        if isinstance(each, ast.Call)
    )


def _trains_anew(module: SourceModule, loop: ast.For) -> bool:
    return any(loop in module.ancestors(made) for _, made in module.calls_matching("torch.optim."))


def _is_of_split(loop: ast.For) -> bool:
    calls = [each for each in walk(loop.iter) if isinstance(each, ast.Call) and each.args]
    return any(method_of(each) == "split" for each in calls)
