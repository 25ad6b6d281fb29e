# SPDX-License-Identifier: Apache-2.0
"""Which loader a loop goes through: known by where it was made, in whatever function or file."""

import ast
from collections.abc import Iterator

from truestep.doctor.source.batches import LOADER
from truestep.doctor.source.contexts import TOP, LocatedExpression
from truestep.doctor.source.evaluations import evaluations_of
from truestep.doctor.source.events import Frame, Trace
from truestep.doctor.source.module import SourceModule


def loader_of(module: SourceModule, trace: Trace, loop: Frame) -> ast.Call | None:
    """Return `DataLoader(...)` if a loop goes through one, be it through enumerate, zip or a progress bar."""
    source = loop.node.iter if isinstance(loop.node, ast.For) else None
    contexts = trace.contexts
    while source is not None and contexts is not None:
        made = contexts.origin(LocatedExpression(source, loop.context or TOP))
        if not isinstance(made.node, ast.Call):
            return None
        if module.qualify(made.node.func) == LOADER:
            return made.node
        given = made.node.args
        source = given[0] if given and module.resolver.target(made.node) is None else None
        loop = Frame("loop", loop.node, made.context)
    return None


def trained_on(module: SourceModule) -> Iterator[ast.Call]:
    """Yield the loaders that training loops go through."""
    for trace in module.traces:
        contexts = trace.contexts
        for loop in trace.training_loops():
            if contexts is not None:
                contexts.choose(trace.world)
            frames = [frame for frame in loop.path if frame.kind == "loop"]
            found = loader_of(module, trace, frames[-1])
            if found is not None:
                yield found


def evaluated_on(module: SourceModule) -> Iterator[ast.Call]:
    """Yield the loaders of loops that evaluate what is trained elsewhere."""
    for trace in module.traces:
        for forward in evaluations_of(module, trace):
            loops = [frame for frame in forward.path if frame.kind == "loop"]
            if trace.contexts is not None:
                trace.contexts.choose(trace.world)
            found = loader_of(module, trace, loops[-1]) if loops else None
            if found is not None and not trace.within(forward.loop_path(), "backward", "step"):
                yield found
