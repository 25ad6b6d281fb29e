# SPDX-License-Identifier: Apache-2.0
"""Which loader a loop goes through, the user's or a library's: known by where it was made, in whatever function or file."""

import ast
from collections.abc import Iterator
from typing import Any

from truestep.doctor.source.batch_counts import LOADER
from truestep.doctor.source.evaluations import evaluations_of
from truestep.doctor.source.events import Trace, TraceFrame
from truestep.doctor.source.frames import TOP, CallFrame, LocatedExpression, UnknownValue
from truestep.doctor.source.libraries import LOADERS_ASKED, LOADERS_GIVEN
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Function, dotted_name, last_part, method_of, receiver_of, walk
from truestep.doctor.source.value_contexts import CallFrames
from truestep.doctor.source.value_origins import argument, calls_behind

TRAINED, EVALUATED = "trained", "evaluated"


def _loader_through_wrappers(
    module: SourceModule, trace: Trace, loop: TraceFrame
) -> LocatedExpression | None:
    source = loop.node.iter if isinstance(loop.node, ast.For) else None
    contexts = trace.contexts
    if contexts is not None:
        contexts.choose(trace.world, trace.root)
    while source is not None and contexts is not None:
        made = contexts.origin(LocatedExpression(source, loop.context or TOP))
        if not isinstance(made.node, ast.Call):
            return None
        if module.qualify(made.node.func) == LOADER:
            return made
        given = made.node.args
        source = given[0] if given and module.functions.target(made.node) is None else None
        loop = TraceFrame("loop", loop.node, made.context)
    return None


def training_loaders(module: SourceModule, *, always: bool = False) -> Iterator[LocatedExpression]:
    """Yield the loaders that training loops go through, each in the call in which it is made; `always`: with no test around."""
    for trace in module.traces:
        for loop in trace.training_loops():
            above = [each for event in loop.of("backward") for each in module.ancestors(event.node)]
            if always and any(isinstance(each, ast.If) for each in {*above} - {*module.ancestors(loop.node)}):
                continue
            frames = [frame for frame in loop.path if frame.kind == "loop"]
            found = _loader_through_wrappers(module, trace, frames[-1])
            if found is not None:
                yield found
    yield from _loaders_of_library(module, TRAINED)


def evaluation_loaders(module: SourceModule) -> Iterator[LocatedExpression]:
    """Yield the loaders of loops that evaluate what is trained elsewhere, each in the call in which it is made."""
    for trace in module.traces:
        for forward in evaluations_of(module, trace):
            loops = [frame for frame in forward.path if frame.kind == "loop"]
            found = _loader_through_wrappers(module, trace, loops[-1]) if loops else None
            if found is not None and not trace.within(forward.loop_path(), "backward", "step"):
                yield found
    yield from _loaders_of_library(module, EVALUATED)


def goes_over_batches(module: SourceModule, loop: ast.For | ast.While) -> bool:
    """Tell a loop over a loader, be it within `enumerate` or a bar."""
    parts = (
        [each for each in walk(loop.iter) if isinstance(each, ast.expr)] if isinstance(loop, ast.For) else []
    )
    return any(module.kind(each) == "loader" for each in parts)


def loop_iterable(module: SourceModule, loop: ast.AST | None) -> ast.expr | None:
    """Return what a loop goes through, be it by enumerate or a progress bar."""
    source = loop.iter if isinstance(loop, ast.For) else None
    while isinstance(source, ast.Call) and source.args and module.functions.target(source) is None:
        if module.kind(source) == "loader":
            break
        source = source.args[0]
    return source


def is_batch_length(size: ast.expr) -> bool:
    """Tell `len(x)`, `x.shape[0]` and `x.size(0)`."""
    called = last_part(size.func) if isinstance(size, ast.Call) else ""
    measured = size.value if isinstance(size, ast.Subscript) else None
    is_shape = isinstance(measured, ast.Attribute) and measured.attr == "shape"
    return called == "len" or (isinstance(size, ast.Call) and method_of(size) == "size") or is_shape


def is_loader_trained_on_here(module: SourceModule, loader: ast.Call) -> bool:
    """Tell whether what goes backward in the loader's own function is made of its batches, by a loop or by `next`."""
    scope = module.scope(loader)
    for call in module.method_calls("backward"):
        receiver = receiver_of(call)
        if receiver is None or module.scope(call) is not scope:
            continue
        loops = [each for each in module.ancestors(call) if isinstance(each, ast.For)]
        if any(
            loader in calls_behind(module, each.iter) and not _is_in_branch(module, call, each)
            for each in loops
        ):
            return True
        if any(loader in calls_behind(module, each) for each in _next_calls_behind(module, receiver)):
            return True
    return False


def _next_calls_behind(module: SourceModule, value: ast.expr) -> list[ast.Call]:
    return [each for each in calls_behind(module, value) if dotted_name(each.func) == "next"]


def _is_in_branch(module: SourceModule, node: ast.AST, loop: ast.For) -> bool:
    for above in module.ancestors(node):
        if above is loop:
            return False
        if isinstance(above, (ast.If, ast.IfExp)):
            return True
    return True


def argument_value(module: SourceModule, node: ast.expr | None, context: CallFrame) -> Any:
    """Return the constant that an argument gives in the call in which it is evaluated, or None."""
    value = CallFrames(module.resolver).value(LocatedExpression(node, context)) if node is not None else None
    return None if isinstance(value, UnknownValue) else value


def argument_origin(
    module: SourceModule, node: ast.expr | None, context: CallFrame
) -> LocatedExpression | None:
    """Return what made an argument, in the call in which it is evaluated."""
    return CallFrames(module.resolver).origin(LocatedExpression(node, context)) if node is not None else None


# ── the loops of libraries ────────────────────────────────────────────────────────────────────


def _loaders_of_library(module: SourceModule, use: str) -> Iterator[LocatedExpression]:
    """Yield what a library goes through: what it asks a class of this file for, or is given by a call."""
    contexts = CallFrames(module.resolver)
    for value in [*_loaders_asked_of_class(module, use), *_loaders_given_to_trainer(module, use)]:
        yield from _each_loader(module, contexts, value)


def _loaders_asked_of_class(module: SourceModule, use: str) -> Iterator[LocatedExpression]:
    for owner in module.kinds.classes_of(*LOADERS_ASKED):
        methods = LOADERS_ASKED[module.kinds.of_class(owner) or ""][use]
        found = [
            binding.node for name in methods for binding in module.classes.attributes(owner).get(name, [])
        ]
        for function in found:
            if isinstance(function, Function):
                for value in module.functions.results(function):
                    yield LocatedExpression(value, CallFrame(function))


def _loaders_given_to_trainer(module: SourceModule, use: str) -> Iterator[LocatedExpression]:
    for method, arguments in LOADERS_GIVEN.items():
        for call in module.method_calls(method):
            if isinstance(call.func, ast.Attribute) and module.kind(call.func.value) == "lightning trainer":
                given = argument(call, *arguments[use]) if use in arguments else None
                function = module.scope(call)
                frame = CallFrame(function) if isinstance(function, Function) else TOP
                if given is not None:
                    yield LocatedExpression(given, frame)


def _each_loader(
    module: SourceModule, contexts: CallFrames, value: LocatedExpression, depth: int = 0
) -> Iterator[LocatedExpression]:
    """Yield the loaders of a value: itself, or those that a list or a dict of them holds."""
    made = contexts.origin(value)
    parts: list[ast.expr] = []
    if isinstance(made.node, ast.Call):
        if module.qualify(made.node.func) == LOADER:
            yield made
        elif module.functions.target(made.node) is None:
            parts = made.node.args[:1]  # CombinedLoader(loaders)
    elif isinstance(made.node, (ast.List, ast.Tuple)):
        parts = made.node.elts
    elif isinstance(made.node, ast.Dict):
        parts = made.node.values
    for part in parts if depth < 2 else ():
        yield from _each_loader(module, contexts, LocatedExpression(part, made.context), depth + 1)
