# SPDX-License-Identifier: Apache-2.0
"""Evaluating a model that was never put into eval mode."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from truestep.doctor.check import BUG, QUESTION, RISK, At, SourceCheck, Unsure
from truestep.doctor.library.loops import ENGINES
from truestep.doctor.library.operations import SAME_NUMBERS
from truestep.doctor.source.cached_questions import imported_names
from truestep.doctor.source.evaluations import (
    Layers,
    TrainedModels,
    evaluations_of,
    is_generator,
    is_held_out_evaluation,
    is_look_at_fresh_network,
    sensitive_layers,
)
from truestep.doctor.source.events import Path, Trace, TraceEvent
from truestep.doctor.source.frames import TOP, LocatedExpression
from truestep.doctor.source.library_batch_loops import library_runs_of_engines
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted_name, given_to, method_of, names_in, walk
from truestep.doctor.source.training_actions import EVALUATE
from truestep.doctor.source.value_origins import calls_behind, value_origins
from truestep.doctor.watcher_base import Observation, Observations, Watcher

if TYPE_CHECKING:
    from truestep.doctor.runtime.history import ModelApplication, WatchHistory
    from truestep.doctor.runtime.row_records import RowBatch

_PICKS = "argmax"


class EvaluationInTrainingMode(SourceCheck, Watcher):
    """A model is evaluated without eval().

    Why: dropout goes on dropping, and batch norm normalises by the test batch and learns from it.

    Bad:
        net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()
        with torch.no_grad():
            for x, y in test_loader:
                correct = (net(x).argmax(1) == y).sum()  # here

    Good:
        net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()
        net.eval()
        with torch.no_grad():
            for x, y in test_loader:
                correct = (net(x).argmax(1) == y).sum()

    Fix: net.eval() before, net.train() after; functions such as F.dropout need training=self.training.

    Evidence: eriklindernoren/PyTorch-GAN 36d3c77e implementations/aae/aae.py:152; eriklindernoren/PyTorch-GAN
    36d3c77e implementations/acgan/acgan.py:159; 186 repositories, beds C, D, E, F, G, I, K, L, M, P, Q, R, S,
    T, U, V, W, X, Y: 72 true, 12 debatable, 9 false.
    """

    code = "EVAL002"
    never = (EVALUATE,)
    words = ("no_grad", "inference_mode", "set_grad_enabled", "eval", "test", "val", "argmax")

    def read(self, module: SourceModule) -> Iterator[At | Unsure]:
        """Report the first application of a model in an evaluation that no eval() of it precedes."""
        for call, held in _applied_by_evaluating_engines(module):
            yield At(call, _evaluated_in_training_mode(held), RISK)
        for trace in module.traces:
            known = list(evaluations_of(module, trace))
            compared = _forwards_compared_with_labels(module, trace)
            for forward in [*known, *(each for each in compared if each not in known)]:
                if _mode_before(module, trace, forward) in ("eval", "unknown") or forward.receiver is None:
                    continue
                if _is_dropout_on_input(module, forward):
                    continue
                layers = sensitive_layers(module, forward.receiver, forward.node)
                if layers is None:
                    yield Unsure(
                        forward.node, "whether the model has dropout or batch norm can't be seen from here"
                    )
                elif layers:
                    text, severity = _evaluated_in_training_mode(layers), RISK
                    certain = forward in known and is_held_out_evaluation(module, trace, forward)
                    if is_generator(module, trace, forward) and not _is_scored_on_target(module, forward):
                        text, severity = _samples_in_training_mode(layers), QUESTION
                    elif certain and any(layers.values()) and not _is_eval_called_in_caller(trace, forward):
                        severity = BUG
                    yield At(_model_call_site(module, forward), text, severity)
                    break

    def on_evaluation(self, history: WatchHistory, applied: list[ModelApplication]) -> Observations:
        """Report a trained model that was applied with layers in training mode."""
        for each in applied:
            if not each.active or not history.is_trained(each.model):
                continue
            layers, severity = ", ".join(each.active), BUG
            text = f"The model is evaluated in training mode; {layers} is active."
            if not each.training:  # dropout as a measure of uncertainty is switched on so
                text = f"The model is evaluated in eval mode, its {layers} in training mode: is that meant?"
                severity = QUESTION
            elif _is_gan_generator(history, each.rows):
                text, severity = _samples_in_training_mode(each.active), QUESTION
            evidence = {
                "layers": each.active,
                "after_steps": history.num_steps,
                "model": history.called(each.model),
            }
            yield Observation(each.place, text, severity, evidence)


def _evaluated_in_training_mode(layers: Iterable[str]) -> str:
    return f"The model is evaluated in training mode; it has {', '.join(sorted(layers))}."


def _samples_in_training_mode(layers: Iterable[str]) -> str:
    return (
        f"The model gives samples in training mode, with {', '.join(sorted(layers))} active: is that meant?"
    )


def _applied_by_evaluating_engines(module: SourceModule) -> Iterator[tuple[ast.Call, Layers]]:
    """Yield where a function that a library calls for each batch applies what another one trains, if nothing says eval()."""
    runs = library_runs_of_engines(module.resolver) if ENGINES.keys() & imported_names(module) else {}
    trained: set[ast.expr | None] = set()
    others: list[ast.Call] = []
    for function in {run.trains: None for run in runs.values()}:
        calls = list(module.home(function).inside(function, ast.Call))
        applied = [each for each in calls if module.kind(each.func) in ("module", "ddp")]
        if any(method_of(each) in ("backward", "step") for each in calls):
            trained.update(made for each in applied for made in value_origins(module, each.func))
        elif not any(module.functions.target(each) for each in calls if each not in applied):
            others += applied
    switched = module.program.called_anywhere("eval") or any(
        each.args or each.keywords for each in module.program.called_anywhere("train")
    )
    for call in others if not switched else ():
        made = set(value_origins(module, call.func))
        if None not in made and made <= trained and module.home(call) is module:
            if layers := sensitive_layers(module, call.func, call):
                yield call, layers


def _is_dropout_on_input(module: SourceModule, forward: TraceEvent) -> bool:
    """Tell a dropout of its own that is applied to data, or to ones, and to nothing that a layer gave: it spoils the input."""
    made = list(value_origins(module, forward.receiver)) if forward.receiver is not None else []
    if not made or not all(_is_dropout_layer(module, each) for each in made):
        return False
    given = forward.node.args if isinstance(forward.node, ast.Call) else []
    computed = [call for each in given for call in calls_behind(module, each) if call is not forward.node]
    return bool(given) and not any(_is_network_output(module, each) for each in [*computed, *given])


def _is_network_output(module: SourceModule, value: ast.expr) -> bool:
    """Tell what a network computes: a layer, a function of torch's for one, a product of matrices."""
    if any(isinstance(each, ast.MatMult) for each in walk(value)):
        return True
    name = (module.qualify(value.func) or "") if isinstance(value, ast.Call) else ""
    applied = isinstance(value, ast.Call) and module.kind(value.func) in ("module", "ddp")
    return applied or name.startswith("torch.nn.functional.")


def _is_dropout_layer(module: SourceModule, made: ast.expr | None) -> bool:
    name = (module.qualify(made.func) or "") if isinstance(made, ast.Call) else ""
    return name.startswith("torch.nn.") and "Dropout" in name


def _is_gan_generator(history: WatchHistory, rows: RowBatch | None) -> bool:
    """Tell whether another model judges in training what this one gives, and none does here: a GAN's generator."""
    return rows is not None and not rows.is_passed_on and history.rows.passes_on_in_training(rows)


def _forwards_compared_with_labels(module: SourceModule, trace: Trace) -> Iterator[TraceEvent]:
    """Yield the forwards of what is trained whose classes are compared with others: `net(x).argmax(1) == y`."""
    loops = trace.learning_loops()
    trained = TrainedModels(module, loops)
    for forward in trace.of("forward"):
        apart = not any(forward.inside(loop.path) for loop in loops)  # of the batch it may be meant so
        fresh = is_look_at_fresh_network(module, trace, forward)
        if apart and not fresh and isinstance(forward.node, ast.Call) and forward in trained:
            picked = [_argmax_of(module, each) for each in _uses_of_value(module, forward.node)]
            if picked and all(each is not None and _is_argmax_compared(module, each) for each in picked):
                yield forward


def _model_call_site(module: SourceModule, forward: TraceEvent) -> ast.AST:
    """Return the call by which the model is applied, which is where eval() lacks: not that of a layer in its forward."""
    calls = [
        frame.node for frame in forward.path if frame.kind == "call" and isinstance(frame.node, ast.Call)
    ]
    whole = [each for each in calls if getattr(module.functions.applied(each), "name", "") == "forward"]
    return whole[0] if whole else forward.node


def _is_scored_on_target(module: SourceModule, forward: TraceEvent) -> bool:
    """Tell `metric(net(x), y)`, where y comes from the same data: what a network gives is held against what it should."""
    loops = [frame.node for frame in forward.path if isinstance(frame.node, ast.For)]
    loops = [each for each in loops if not any(dotted_name(part) == "range" for part in walk(each.iter))]
    counters = [
        each.target.elts[0]
        for each in loops
        if _is_enumerate_loop(each) and isinstance(each.target, ast.Tuple)
    ]
    names = {name for each in loops for name in names_in(each.target)} - set(map(dotted_name, counters))
    for use in _uses_of_value(module, forward.node):
        match module.parents.get(use):
            case ast.Call() as call:
                others = given_to(call)
            case ast.BinOp(left=left, right=right) | ast.Compare(left=left, comparators=[right]):
                others = [left, right]
            case _:
                others = []
        if any(not names.isdisjoint(names_in(each)) for each in others if each is not use):
            return True
    return False


def _is_enumerate_loop(loop: ast.For) -> bool:
    return any(dotted_name(each) == "enumerate" for each in walk(loop.iter))


def _uses_of_value(module: SourceModule, node: ast.expr) -> list[ast.expr]:
    """Return where a value is used: itself, or the reads of the name that is given to it alone."""
    statement = module.parents.get(node)
    if not isinstance(statement, ast.Assign):
        return [node]
    name = statement.targets[0]
    if len(statement.targets) > 1 or not isinstance(name, ast.Name):
        return []
    reads = [each for each in module.reads(name.id) if module.definitions(each) == [node]]
    others = [each for each in module.reads(name.id) if node in module.definitions(each)]
    return reads if len(reads) == len(others) else []


def _argmax_of(module: SourceModule, node: ast.expr) -> ast.expr | None:
    """Return `node.argmax(1)` or `torch.argmax(node, 1)`."""
    outer = module.parents.get(node)
    if isinstance(outer, ast.Attribute) and outer.attr == _PICKS:
        call = module.parents.get(outer)
        return call if isinstance(call, ast.Call) and call.func is outer else None
    if isinstance(outer, ast.Call) and node in outer.args:
        return outer if module.qualify(outer.func) == f"torch.{_PICKS}" else None
    return None


def _is_argmax_compared(module: SourceModule, picked: ast.expr) -> bool:
    uses = _uses_of_value(module, picked)
    return bool(uses) and all(_is_equality_operand(module, each) for each in uses)


def _is_equality_operand(module: SourceModule, node: ast.expr) -> bool:
    """Tell a side of `==`, or what `.eq()` is called on or given."""
    outer = module.parents.get(node)
    if isinstance(outer, ast.Compare):
        return isinstance(outer.ops[0], ast.Eq)
    if isinstance(outer, ast.Call):
        return isinstance(outer.func, ast.Attribute) and outer.func.attr == "eq" and node in outer.args
    call = module.parents.get(outer) if isinstance(outer, ast.Attribute) else None
    if not isinstance(outer, ast.Attribute) or not isinstance(call, ast.Call) or call.func is not outer:
        return False
    return outer.attr == "eq" or (outer.attr in SAME_NUMBERS and _is_equality_operand(module, call))


def _mode_before(module: SourceModule, trace: Trace, forward: TraceEvent) -> str | None:
    """Return "eval", "train", "unknown" (by a value that can't be seen), or None where nothing sets the mode.

    What a function sets and puts back (`was = net.training`, `net.train(was)`) leaves the mode as it was.
    """
    before = trace.events[: trace.events.index(forward)]
    modes = [
        event
        for event in before
        if event.kind in ("eval", "train")
        and not _is_mode_in_exited_branch(event, forward)
        and (
            _is_same_module(module, event, forward)
            or _is_passed_to_constructor(module, trace, event, forward)
        )
    ]
    while modes and _is_saved_mode_restored(module, modes[-1]):
        within = _call_path(modes.pop())
        while modes and modes[-1].inside(within):
            inner = modes.pop()
            if not within and inner.kind == "eval":
                break
    if not modes:
        return None
    return modes[-1].kind if _mode_variable(modes[-1]) is None else "unknown"


def _is_eval_called_in_caller(trace: Trace, forward: TraceEvent) -> bool:
    """Tell whether the function around the forward calls eval() of something that may hold the model, after the last step."""
    before = trace.events[: trace.events.index(forward)]
    since = [each for each in before if each.kind in ("eval", "train", "step")][-1:]
    return any(
        each.kind == "eval" and _call_path(each) and forward.inside(_call_path(each)) for each in since
    )


def _is_mode_in_exited_branch(mode: TraceEvent, forward: TraceEvent) -> bool:
    """Tell a mode set in a branch that ends by `return` or `raise`: what comes behind it did not go there."""
    around = [frame.node for frame in forward.path]
    nodes = [*(frame.node for frame in mode.path), mode.node]
    for branch, within in itertools.pairwise(nodes):
        if isinstance(branch, ast.If) and branch not in around:
            for block in (branch.body, branch.orelse):
                leaves = bool(block) and isinstance(block[-1], (ast.Return, ast.Raise))
                if leaves and any(within in walk(each) for each in block):
                    return True
    return False


def _mode_variable(mode: TraceEvent) -> ast.expr | None:
    """Return the variable of `net.train(variable)`."""
    args = mode.node.args if isinstance(mode.node, ast.Call) else []
    return args[0] if mode.kind == "train" and args and not isinstance(args[0], ast.Constant) else None


def _is_saved_mode_restored(module: SourceModule, mode: TraceEvent) -> bool:
    given = _mode_variable(mode)
    if given is None:
        return False
    values = [given, *module.definitions(given)]
    return any(isinstance(each, ast.Attribute) and each.attr == "training" for each in values)


def _call_path(event: TraceEvent) -> Path:
    calls = [index for index, frame in enumerate(event.path) if frame.kind == "call"]
    return event.path[: calls[-1] + 1] if calls else ()


def _is_same_module(module: SourceModule, mode: TraceEvent, forward: TraceEvent) -> bool:
    mine, other = forward.subject, mode.subject
    return (
        other in {mine, "?"}
        or mine.startswith(other + ".")
        or isinstance(mode.receiver, ast.Call)
        or other.endswith(".self")
        or (mode.kind == "eval" and _is_variable_of_model_loop(module, mode.receiver))
        or _can_contain_class(module, mode.receiver, mine.partition(".")[0])
    )


def _is_passed_to_constructor(
    module: SourceModule, trace: Trace, mode: TraceEvent, forward: TraceEvent
) -> bool:
    """Tell whether the model was handed to the constructor of what is set: it is a part of that now."""
    contexts = trace.contexts
    if contexts is None or mode.receiver is None or forward.receiver is None:
        return False
    contexts.choose(trace.world, trace.root)
    whole = contexts.origin(LocatedExpression(mode.receiver, mode.context or TOP))
    part = contexts.origin(LocatedExpression(forward.receiver, forward.context or TOP))
    if not isinstance(whole.node, ast.Call) or not isinstance(part.node, ast.Call):
        return False
    maker = module.home(part.node).enclosing(part.node, ast.ClassDef)
    # of a parameter that may be one of several models it is here the one that this call was given
    holder = mode.receiver if module.classes.of(mode.receiver) is not None else whole.node
    known = maker is not None and module.classes.of(holder) is not None
    if known and maker is not None and _can_contain_class(module, holder, maker.name):
        return True  # made by what is set, and handed on to what applies it
    given = given_to(whole.node)
    return any(contexts.origin(LocatedExpression(each, whole.context)).node is part.node for each in given)


def _is_variable_of_model_loop(module: SourceModule, model: ast.expr | None) -> bool:
    """Tell `for net in (first, second): net.eval()`; train() so may be of a model's own layers, on purpose."""
    return isinstance(model, ast.Name) and any(each.how == "for" for each in module.names.bindings(model))


def _can_contain_class(module: SourceModule, model: ast.expr | None, name: str) -> bool:
    """Tell whether what is set is an instance of the class in whose method a layer is applied, or has one inside."""
    if not module.classes.has(name) or model is None:
        return False
    owner = module.classes.of(model)
    return owner is None or name in _names_of_contained_classes(module, owner, set())


def _names_of_contained_classes(module: SourceModule, owner: ast.ClassDef, seen: set[str]) -> set[str]:
    found = {each.name for each in module.classes.lineage(owner)} | seen
    for call in (
        node for each in module.classes.lineage(owner) for node in walk(each) if isinstance(node, ast.Call)
    ):
        if (made := module.classes.named(call.func)) is not None and made.name not in found:
            found |= _names_of_contained_classes(module, made, found)
    return found
