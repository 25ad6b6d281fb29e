# SPDX-License-Identifier: Apache-2.0
"""A layer replaced when the optimizer holds the old one."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from truestep.core.text_formatting import plural
from truestep.doctor.check import At, SourceCheck
from truestep.doctor.finding import Place
from truestep.doctor.library.operations import operations
from truestep.doctor.source.live_variables import are_in_other_arms
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted_name, walk
from truestep.doctor.source.value_origins import argument_parts, constant, resolve_expression
from truestep.doctor.watcher_base import Observation, Observations, Watcher

if TYPE_CHECKING:
    from truestep.doctor.runtime.history import OptimizerRecord, WatchHistory

AFTER = 4  # steps
_MOVES = operations(numbers="home moved rounded")
NO_OPTIMIZERS = ("torch.optim.lr_scheduler", "torch.optim.swa_utils")


class ModuleReplacedAfterOptimizer(SourceCheck, Watcher):
    """A layer of a model is replaced after the optimizer was made.

    Why: the optimizer still holds the old layer's parameters; the new ones are never trained.

    Bad:
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        net.head = nn.Linear(8, 3)  # here
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()

    Good:
        net.head = nn.Linear(8, 3)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()

    Fix: build, move, replace; then make the optimizer (or opt.add_param_group).

    Evidence: the plain form of row 54 of docs/mistakes.md; bed H: 0 true, 1 false.
    """

    code = "PARAM005"
    words = ("arameters()",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report `net.x = nn.Layer(...)` after an optimizer over net, in the same block or within one of its statements."""
        for assignment in module.all(ast.Assign):
            target = assignment.targets[0]
            if not (
                isinstance(target, (ast.Attribute, ast.Subscript)) and _is_layer(module, assignment.value)
            ):
                continue
            base = target.value
            while isinstance(base, ast.Attribute) and module.kind(base) not in ("module", "ddp"):
                base = base.value
            made = _optimizer_before(module, base, assignment)
            if made is not None and dotted_name(base) != "self":
                yield At(
                    assignment,
                    f"{ast.unparse(target)} is replaced after the optimizer was made on line {made.lineno}.",
                )

    def on_step(self, history: WatchHistory, record: OptimizerRecord, place: Place) -> Observations:
        """Report parameters that belong to no model any more, beside some of a model that still do."""
        if record.num_steps != AFTER:
            return
        models = [model for model in history.models if history.is_trained(model)]
        known = {id(each) for model in models for each in model.parameters()}
        lost = [each for each in record.parameters() if id(each) not in known and each.grad is None]
        held = {id(each) for every in history.records.values() for each in every.parameters()}
        new = [name for model in models for name, each in model.named_parameters() if id(each) not in held]
        if models and lost and new:
            text = f"The optimizer holds {plural(len(lost), 'parameter')} of a replaced layer, not {', '.join(new[:4])}."
            yield Observation(record.place, text, evidence={"replaced": len(lost), "not_optimized": new[:6]})


def _is_layer(module: SourceModule, value: ast.expr) -> bool:
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _MOVES:
        value = value.func.value  # nn.Linear(8, 3).to(device)
    name = module.qualify(value.func) if isinstance(value, ast.Call) else None
    return bool(name and name.startswith("torch.nn.") and name.count(".") == 2 and not name.endswith("Loss"))


def _optimizer_before(module: SourceModule, base: ast.expr, assignment: ast.Assign) -> ast.Call | None:
    name, around = dotted_name(base), list(module.ancestors(assignment))
    for found, call in module.calls_matching("torch.optim."):
        made = module.statement(call)
        if found.startswith(NO_OPTIMIZERS) or module.scope(call) is not module.scope(assignment):
            continue
        if module.parents.get(made) not in around or are_in_other_arms(module, made, assignment):
            continue
        holds = any(_is_same_model(module, each, base) for each in _models_of_optimizer(module, call))
        if (
            holds
            and call.lineno < assignment.lineno
            and not _is_optimizer_made_again(module, assignment, name)
        ):
            return call
    return None


def _is_same_model(module: SourceModule, given: ast.expr, base: ast.expr) -> bool:
    """Tell two places of one name with one value: none that lies between binds it to another model."""
    name = dotted_name(base)
    if name is None or dotted_name(given) != name:
        return False
    if module.scope(given) is not module.scope(base):
        return True
    places: list[ast.Name | ast.Attribute] = [*module.all(ast.Name), *module.all(ast.Attribute)]
    stores = [each for each in places if isinstance(each.ctx, ast.Store)]
    between = [
        each for each in stores if given.lineno < each.lineno < base.lineno and dotted_name(each) == name
    ]
    block = module.parents[module.statement(base)]
    return not any(block in module.ancestors(each) for each in between)


def _models_of_optimizer(module: SourceModule, call: ast.Call) -> list[ast.expr]:
    """Return the models whose parameters an optimizer is given: `net` of `net.parameters()`, in whatever expression."""
    return [
        node.func.value
        for node in argument_parts(module, call)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("parameters", "named_parameters")
    ]


def _is_optimizer_made_again(module: SourceModule, assignment: ast.Assign, name: str | None) -> bool:
    """A second optimizer or group after the replacement repairs it, unless it is of other models, or of one tensor."""
    later = [
        call
        for found, call in module.calls_matching("torch.optim.")
        if not found.startswith(NO_OPTIMIZERS)
        and (call.lineno > assignment.lineno or module.scope(call) is not module.scope(assignment))
    ]
    groups = module.method_calls("add_param_group")
    return any(not _is_optimizer_of_other_models(module, each, name) for each in later) or any(
        not _is_single_tensor_group(module, each) for each in groups
    )


def _is_single_tensor_group(module: SourceModule, group: ast.Call) -> bool:
    """Tell `add_param_group({"params": [late]})` of one item of a list: a layer has more."""
    given = resolve_expression(module, group.args[0]) if group.args else None
    values = given.values if isinstance(given, ast.Dict) else []
    tensors = [each for value in values if isinstance(value, ast.List) for each in value.elts]
    return len(tensors) == 1 and _is_list_item(module, resolve_expression(module, tensors[0]))


def _is_list_item(module: SourceModule, node: ast.expr | None) -> bool:
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        node = resolve_expression(module, node.func.value)  # requires_grad_(True)
    return isinstance(node, ast.Subscript) and isinstance(constant(node.slice), int)


def _is_optimizer_of_other_models(module: SourceModule, optimizer: ast.Call, name: str | None) -> bool:
    """Tell an optimizer that is given the parameters of models which have nothing to do with one of this name."""
    read = [
        each for part in argument_parts(module, optimizer) for each in _names_behind_expression(module, part)
    ]
    if any(each is None for each in read) or not _models_of_optimizer(module, optimizer):
        return False
    return not any(f"{name}.".startswith(f"{dotted_name(each)}.") for each in read if each is not None)


def _names_behind_expression(module: SourceModule, part: ast.AST) -> Iterator[ast.expr | None]:
    """Yield the names that a part of an expression is made of, be it an item of what is gone through; None where one is unknown."""
    waiting, seen = [part], set[ast.AST]()
    while waiting:
        node = waiting.pop()
        if node in seen or not isinstance(node, (ast.Name, ast.Attribute)):
            continue
        seen.add(node)
        made = module.definitions(node)
        is_given = isinstance(node, ast.Name) and any(
            each.how == "parameter" for each in module.names.bindings(node)
        )
        is_hidden = is_given and None in made and dotted_name(node) != "self"
        yield None if is_hidden else node
        values = [*(each for each in made if each is not None), *_iterables_of_enclosing_loops(module, node)]
        waiting += [each for value in values for each in walk(value)]


def _iterables_of_enclosing_loops(module: SourceModule, node: ast.AST) -> Iterator[ast.expr]:
    """Yield what the loops around a node go through."""
    for around in module.ancestors(node):
        if isinstance(around, ast.For):
            yield around.iter
        elif isinstance(around, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            yield from (each.iter for each in around.generators)
