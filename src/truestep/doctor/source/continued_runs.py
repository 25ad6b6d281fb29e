# SPDX-License-Identifier: Apache-2.0
"""Trainings that are to begin anew, and go on with the weights that another one has trained."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.source.memoized_walk import walk_each_once
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted_name, last_part, method_of, receiver_of, walk
from truestep.doctor.source.value_origins import argument

_ROUNDS = re.compile(r"(^|_)(seed|fold|trial|rep|repeat|repetition)(_|$)")
_PUTS_BACK = re.compile(r"^load_|deepcopy|reset|restore|init|^apply$|^copy_$|^clone$")


def carried_on(module: SourceModule) -> Iterator[tuple[ast.Call, str]]:
    """Yield the optimizers of such trainings, each with what happens there."""
    for _, made in module.calls_matching("torch.optim."):
        held = argument(made, 0, "params")
        if (
            isinstance(held, ast.Call)
            and isinstance(held.func, ast.Attribute)
            and held.func.attr == "parameters"
        ):
            model = held.func.value
            rounds = [each for each in _loops_around(module, made) if _is_restart_loop(each)]
            if any(
                _is_shared_model(module, each, model) and not _can_reset_weights(module, each)
                for each in rounds
            ):
                yield (
                    made,
                    f"Each round goes on with the weights that the round before left in {ast.unparse(model)!r}.",
                )
            for trained in _earlier_training_values(module, made, model):
                text = f"{ast.unparse(model)!r} goes on with the weights that line {trained.lineno} left in it to find this rate."
                yield made, text
                break


def bests_of_other_parts(module: SourceModule) -> Iterator[tuple[ast.If, str]]:
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


def _loops_around(module: SourceModule, node: ast.AST, depth: int = 2) -> Iterator[ast.For]:
    """Yield the loops around a node, and around the calls of the function that it stands in."""
    yield from (each for each in module.ancestors(node) if isinstance(each, ast.For))
    function = module.enclosing(node, ast.FunctionDef)
    for call in module.functions.callers(function) if function is not None and depth else ():
        yield from _loops_around(module.home(call), call, depth - 1)


def _is_restart_loop(loop: ast.For) -> bool:
    """Tell a loop over seeds, or over the parts of a cross validation, by its name or by `.split(x)`."""
    names = [each.id for each in walk(loop.target) if isinstance(each, ast.Name)]
    return any(_ROUNDS.search(each) for each in names) or _is_of_split(loop)


def _is_of_split(loop: ast.For) -> bool:
    calls = [each for each in walk(loop.iter) if isinstance(each, ast.Call) and each.args]
    return any(method_of(each) == "split" for each in calls)


def _is_shared_model(module: SourceModule, loop: ast.For, model: ast.expr) -> bool:
    """Tell a model that was made before a loop, and is the same in each of its rounds."""
    home = module.enclosing(loop, ast.ClassDef)
    places = list(_binding_places(module, model))
    return bool(places) and all(
        each is not None
        and loop not in module.ancestors(each)
        and (
            isinstance(scope := module.scope(each), ast.Module)
            or scope is module.scope(loop)
            or (home is not None and module.enclosing(each, ast.ClassDef) is home)
        )
        for each in places
    )


def _binding_places(module: SourceModule, model: ast.expr, depth: int = 3) -> Iterator[ast.AST | None]:
    """Yield where a model got its name, through parameters; None where that can't be seen."""
    bound = module.resolver.reaching(model) if isinstance(model, ast.Name) else []
    if isinstance(model, ast.Attribute) and (owner := module.classes.of(model.value)) is not None:
        bound = module.resolver.attribute_bindings(owner, model.attr)
    given = module.definitions(model) if not bound or any(each.how == "parameter" for each in bound) else []
    yield from (each.node if each.how == "assign" else None for each in bound if each.how != "parameter")
    for each in given if depth else ():
        yield from (
            _binding_places(module, each, depth - 1) if isinstance(each, ast.Name | ast.Attribute) else [each]
        )


def _can_reset_weights(module: SourceModule, *within: ast.AST) -> bool:
    """Tell whether anything in these nodes, or in a function that they call, may give a model other weights."""

    def called_functions(node: ast.AST) -> list[ast.AST]:
        found = [module.functions.target(each) for each in walk(node) if isinstance(each, ast.Call)]
        return [each for each in found if each is not None]

    parts = [part for node in walk_each_once(within, called_functions, 2) for part in walk(node)]
    calls = [each for each in parts if isinstance(each, ast.Call) and not _is_state_dict_copy(each)]
    return any(_PUTS_BACK.search(last_part(each.func)) for each in calls)


def _is_state_dict_copy(call: ast.Call) -> bool:
    """Tell `copy.deepcopy(net.state_dict())`, which keeps weights and changes none."""
    return any(isinstance(each, ast.Call) and method_of(each) == "state_dict" for each in call.args)


def _earlier_training_values(module: SourceModule, made: ast.Call, model: ast.expr) -> Iterator[ast.expr]:
    """Yield what trained the same model before, to find the rate that an optimizer is given."""
    rate, training = argument(made, 1, "lr"), module.program.training_loops()
    places = set(_binding_places(module, model))
    for call in _calls_behind(module, rate) if rate is not None and None not in places else ():
        function = module.functions.target(call)
        inner = module.home(function).inside(function, ast.For, ast.While) if function is not None else []
        loops = [each for each in module.ancestors(call) if each in training]
        if not any(each in training for each in inner) and not loops:
            continue
        between = [each for each in module.all(ast.Call) if call.lineno < each.lineno < made.lineno]
        given = [call, *loops, *([function] if function is not None else [])]
        same = any(
            isinstance(each, ast.Name | ast.Attribute)
            and dotted_name(each)
            and set(_binding_places(module, each)) == places
            for node in given
            for each in walk(node)
        )
        if (
            same
            and function is not module.scope(made)
            and not _can_reset_weights(module, call, *loops, *between)
        ):
            yield call


def _calls_behind(module: SourceModule, value: ast.expr) -> list[ast.Call]:
    """Return the calls that a number comes from, and those that put something into a list of which it is one."""

    def values_behind(part: ast.expr) -> list[ast.expr]:
        names = [each for each in walk(part) if isinstance(each, ast.Name)]
        made = [each for name in names for each in module.resolver.given_whole_or_in_part(name)]
        kept = [
            each
            for each in module.method_calls("append")
            if (receiver := receiver_of(each)) is not None
            and any(
                dotted_name(receiver) == name.id and module.scope(each) is module.scope(name)
                for name in names
            )
        ]
        return [each for each in [*made, *kept] if each is not None]

    parts = [each for found in walk_each_once([value], values_behind, 4) for each in walk(found)]
    return [each for each in parts if isinstance(each, ast.Call)]
