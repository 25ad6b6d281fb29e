# SPDX-License-Identifier: Apache-2.0
"""An optimizer made anew for each step, which forgets its averages."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.arguments import argument_for
from truestep.doctor.source.counters import is_model_made_anew
from truestep.doctor.source.loaders import goes_over_batches
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Function, dotted_name, given_to, method_of, receiver_of, walk
from truestep.doctor.source.value_origins import argument, literal, resolve_expression, value_origins

_SETS_BACK = ("load_state_dict", "reset_parameters", "apply")


class OptimizerMadeEveryStep(SourceCheck):
    """An optimizer is made anew for each of its steps, over parameters that stay.

    Why: what it keeps of earlier gradients is lost: momentum never builds up, and Adam's first step, which goes by the sign
    of a gradient, is its only one.

    Bad:
        for x, y in loader:
            opt = torch.optim.Adam(net.parameters())  # here
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()

    Good:
        opt = torch.optim.Adam(net.parameters())
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()

    Fix: make it once, before the loop; set another rate by group["lr"] = rate for each group of opt.param_groups.

    Evidence: aaron-zou/pytorch-deeplab-resnet 4d8255d6 train.py:136.
    """

    code = "GRAD069"
    is_preview = True
    words = (".step(",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report one whose steps stand in the loop that makes it, or in the function that a loop calls for each batch."""
        for statement in module.all(ast.Assign):
            name = dotted_name(statement.targets[0])
            made = statement.value
            if name is None or not isinstance(made, ast.Call):
                continue
            if not _keeps_averages(module, made) or not _has_own_steps(module, statement, name):
                continue
            scope, around = module.scope(statement), module.loop(statement)
            if around is not None and module.scope(around) is scope:
                repeated = _stays_in_loop(module, around, made)
            else:
                repeated = (
                    isinstance(scope, Function)
                    and around is None
                    and _is_called_for_each_batch(module, scope, made)
                )
            if repeated:
                yield At(
                    made, "Each step has an optimizer of its own: nothing is kept of earlier gradients.", RISK
                )


def _keeps_averages(module: SourceModule, made: ast.Call) -> bool:
    """Tell an optimizer that keeps something from step to step, made here or by a function of the program."""
    function = module.functions.target(made)
    given_back = [made] if function is None else module.functions.results(function)
    calls = [each for result in given_back for each in value_origins(module.home(result), result)]
    return bool(calls) and all(
        isinstance(each, ast.Call) and _is_stateful(module.home(each), each) for each in calls
    )


def _is_stateful(module: SourceModule, made: ast.Call) -> bool:
    name = module.qualify(made.func) or ""
    momentum = argument(made, 2, "momentum")
    if not name.startswith("torch.optim.") or name.endswith("LBFGS"):
        return False
    return not name.endswith("SGD") or (momentum is not None and literal(module, momentum) not in (0, 0.0))


def _has_own_steps(module: SourceModule, statement: ast.Assign, name: str) -> bool:
    """Tell steps that stand beside what makes the optimizer, none of which is repeated within."""
    scope, loop = module.scope(statement), module.loop(statement)
    steps = [
        each
        for each in module.method_calls("step")
        if (receiver := receiver_of(each)) is not None
        and dotted_name(receiver) == name
        and module.scope(each) is scope
        and not given_to(each)
    ]
    changed = [
        each
        for each in module.all(ast.Attribute)
        if dotted_name(each.value) == name
        and (isinstance(each.ctx, ast.Store) or each.attr == "load_state_dict")
    ]
    loops = {module.loop(each) for each in steps}
    block = module.parents[statement]
    beside = [each for each in steps if block in module.ancestors(each)]
    return bool(beside) and loops == {loop} and not changed and not _leaves_at_once(loop)


def _leaves_at_once(loop: ast.AST | None) -> bool:
    """Tell a loop that ends in its first turn, and one over written values: variants that are tried."""
    if not isinstance(loop, (ast.For, ast.While)):
        return False
    written = isinstance(loop, ast.For) and isinstance(loop.iter, (ast.List, ast.Tuple))
    return written or any(isinstance(each, (ast.Break, ast.Return)) for each in loop.body)


def _stays_in_loop(module: SourceModule, loop: ast.AST, made: ast.Call) -> bool:
    """Tell whether all that an optimizer is given stays the same object in each turn, and is not set back."""
    owners = _owners(module, made)
    back = [receiver_of(each) for each in module.inside(loop, ast.Call) if method_of(each) in _SETS_BACK]
    names = {dotted_name(each) for each in back if each is not None}
    return bool(owners) and not any(
        _is_made_anew(module, loop, each) or dotted_name(each) in names for each in owners
    )


def _is_made_anew(module: SourceModule, loop: ast.AST, model: ast.expr) -> bool:
    """Tell a model that each turn makes or takes, and one of an object that each turn does: `client.net`."""
    while isinstance(model, ast.Attribute) and not is_model_made_anew(module, loop, model):
        model = model.value
    return is_model_made_anew(module, loop, model)


def _is_called_for_each_batch(module: SourceModule, function: Function, made: ast.Call) -> bool:
    """Tell a function that loops over batches call with the same model each time."""
    calls = module.functions.callers(function)
    return (
        bool(calls)
        and _stays_in_loop(module, function, made)
        and all(_is_given_same(module.home(each), function, each, _owners(module, made)) for each in calls)
    )


def _is_given_same(module: SourceModule, function: Function, call: ast.Call, owners: list[ast.expr]) -> bool:
    """Tell a call in a loop over batches, none of which makes the owners of the parameters anew."""
    loop = module.loop(call)
    if loop is None or module.scope(loop) is not module.scope(call):
        return False
    for owner in owners:
        root = (dotted_name(owner) or "").partition(".")[0]
        given = receiver_of(call) if root == "self" else argument_for(function, call, root)
        if given is not None and (dotted_name(given) is None or _is_made_anew(module, loop, given)):
            return False
    return goes_over_batches(module, loop) and not _leaves_at_once(loop)


def _owners(module: SourceModule, made: ast.Call) -> list[ast.expr]:
    """Return the names that the parameters come from: `net` of `net.parameters()`; none where an item is among them."""
    function = module.functions.target(made)
    if function is not None:
        asked = [_parameters_owner(each) for each in module.home(function).inside(function, ast.Call)]
        roots = {(dotted_name(each) or "").partition(".")[0] for each in asked if each is not None}
        given = [argument_for(function, made, each) for each in sorted(roots)]
        return [each for each in given if each is not None and dotted_name(each) is not None]
    parts = [part for each in given_to(made)[:1] for part in walk(resolve_expression(module, each) or each)]
    if any(isinstance(each, ast.Subscript) for each in parts):
        return []
    owners = [_parameters_owner(each) for each in parts if isinstance(each, ast.Call)]
    return [each for each in owners if each is not None and dotted_name(each) is not None]


def _parameters_owner(call: ast.Call) -> ast.expr | None:
    return receiver_of(call) if method_of(call) in ("parameters", "named_parameters") else None
