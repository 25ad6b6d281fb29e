# SPDX-License-Identifier: Apache-2.0
"""retain_graph=True at the only backward."""

import ast
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import ADVICE, At, SourceCheck
from truestep.doctor.source.events import Path, Trace, TraceEvent
from truestep.doctor.source.live_variables import is_handed_on
from truestep.doctor.source.loss_modules import calls_with_graph, is_model_call
from truestep.doctor.source.losses import loses_graph
from truestep.doctor.source.memoized_walk import walk_each_once
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Function, is_none, walk
from truestep.doctor.source.recomputed_values import is_graph_rebuilt_after
from truestep.doctor.source.rewriting import Edits, remove_keyword
from truestep.doctor.source.value_origins import argument, literal, value_origins


class GraphKeptWithoutNeed(SourceCheck):
    """backward(retain_graph=True) where no second backward goes through the same graph.

    Why: a graph stays in memory until the next one is made, and a real mistake (an old state carried into a new step)
    is silenced instead of reported. No result changes, so it is advice; a total that holds each graph is MEM001.

    Bad:
        for x, y in loader:
            opt.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward(retain_graph=True)  # here
            opt.step()

    Good:
        for x, y in loader:
            opt.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            opt.step()

    Fix: drop retain_graph; if torch then says "backward a second time", detach what is carried over.

    Evidence: THUDM/CogDL 281f4742 examples/GRB/attack/injection/speit.py:381; corpus, 186 repositories, beds B,
    E, F, H, L, N, P, R, U, V, W: 13 true, 6 debatable, 7 false.
    """

    code = "GRAD011"
    rewrites = "safe"
    words = ("retain_graph",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report it at the last backward of an iteration."""
        all_found = [(trace, event) for trace in module.traces for event in trace.of("backward")]
        found = [(trace, event) for trace, event in all_found if _has_retain_graph(module, event.node)]
        # where a switch decides on a later backward, some runs need the graph
        needed = {event.node for trace, event in found if not _is_last_backward(module, trace, event)}
        for _, event in found:
            if event.node in needed:
                continue
            if event.loop_path():
                text = "The graph is kept after the last backward of the iteration."
                yield At(event.node, text, ADVICE)
            elif not _is_graph_shared_with_caller(module, event):
                yield At(event.node, "The graph is kept, and nothing goes back through it again.", ADVICE)

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Leave out the argument."""
        return [remove_keyword(module, node, "retain_graph")]


def _has_retain_graph(module: SourceModule, node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and literal(module, argument(node, None, "retain_graph")) is True


def _is_last_backward(module: SourceModule, trace: Trace, event: TraceEvent) -> bool:
    """No other backward, grad or forward hook may follow it in its loop, or in an inner one it stands in.

    Those of graphs that are made behind it don't count.
    """
    path = event.loop_path()
    inside = [
        each
        for each in trace.within(path, "backward", "grad", "unknown")
        if each.kind != "unknown" or each.subject != event.subject
    ]
    # without a forward in the loop, the graph may be one from before it: then each iteration needs it
    if event not in inside or (path and not trace.within(path, "forward")):
        return False
    if _uses_graph_from_before_loop(module, event) if path else _is_repeatedly_called_handler(module, trace):
        return False
    behind = inside[inside.index(event) + 1 :]
    return all(
        is_graph_rebuilt_after(module, event, each) for each in behind
    ) and not _is_graph_needed_after_loop(module, trace, event, path)


def _is_repeatedly_called_handler(module: SourceModule, trace: Trace) -> bool:
    """Tell a handler of events that makes no graph of its own: each call goes back through the one from before."""
    makes_none = not trace.of("forward")
    return makes_none and isinstance(trace.root, Function) and is_handed_on(module, trace.root)


def _uses_graph_from_before_loop(module: SourceModule, event: TraceEvent) -> bool:
    """Tell a loss that is computed from what a model gave before the loop: each iteration goes back through that graph."""
    loop = event.loop_path()[-1].node
    made = calls_with_graph(module, event.receiver) if event.receiver is not None else []
    return any(
        is_model_call(module, call)
        and loop not in module.ancestors(call)
        and module.scope(call) is module.scope(loop)
        and call.lineno < getattr(loop, "lineno", 0)
        for call in made
    )


def _is_graph_needed_after_loop(module: SourceModule, trace: Trace, event: TraceEvent, path: Path) -> bool:
    """Tell whether what goes backward behind its loop in the same function needs the last graph.

    It has no forward of its own, or it reads what the loop computed.
    """
    later = trace.events[trace.order[event] + 1 :]
    behind = [each for each in later if each.kind in ("backward", "grad") and not each.inside(path)]
    return bool(path) and any(
        each.context is event.context
        and (not _has_forward_before(trace, each) or _shares_values_with_backward(module, event, each))
        for each in behind
    )


def _shares_values_with_backward(module: SourceModule, event: TraceEvent, later: TraceEvent) -> bool:
    """Tell `-critic(fake).mean()`, behind a loop that made `fake` and went backward through it."""
    is_behind = getattr(later.node, "lineno", 0) > getattr(event.node, "lineno", 0)
    return is_behind and not is_graph_rebuilt_after(module, event, later)


def _has_forward_before(trace: Trace, event: TraceEvent) -> bool:
    path, order = event.loop_path(), trace.order
    return any(order[each] < order[event] for each in trace.within(path, "forward") if each.inside(path))


def _uses_output_kept_by_object(module: SourceModule, scope: ast.AST, value: ast.expr) -> bool:
    """Tell what is computed from a result of a model that an object keeps from another function: who calls may repeat."""

    def sources(node: ast.expr) -> list[ast.expr]:
        given = [
            each for part in walk(node) if isinstance(part, ast.Name) for each in module.definitions(part)
        ]
        return [each for each in given if each is not None and module.home(each).scope(each) is scope]

    parts = [part for each in walk_each_once([value], sources) for part in walk(each)]
    kept = [part for part in parts if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Load)]
    made = [each for part in kept for each in module.definitions(part) if each is not None]
    return any(
        module.home(each).scope(each) is not scope and _is_output_of_members(module, each) for each in made
    )


def _is_output_of_members(module: SourceModule, value: ast.expr) -> bool:
    """Tell what a model gives from the models, losses and numbers that an object is made with."""
    calls = [each for each in walk(value) if isinstance(each, ast.Call)]
    return any(
        module.kind(each.func) in ("module", "ddp") and module.qualify(each.func) is None for each in calls
    )


def _is_graph_shared_with_caller(module: SourceModule, event: TraceEvent) -> bool:
    """Tell a function that is given its loss, or gives back a value with a graph: its caller may go through it again."""
    scope = module.scope(event.node)
    if not isinstance(scope, Function):
        return False
    made = list(value_origins(module, event.receiver)) if event.receiver is not None else [None]
    is_kept = event.receiver is not None and _uses_output_kept_by_object(module, scope, event.receiver)
    if None in made or is_kept:
        return True  # the loss itself, or the graph behind it, came from there
    return any(not loses_graph(each) for each in module.functions.results(scope) if not is_none(each))
