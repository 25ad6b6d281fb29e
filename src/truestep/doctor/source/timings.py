# SPDX-License-Identifier: Apache-2.0
"""Loops of which nothing but their duration is kept."""

import ast

from truestep.doctor.library.operations import operations
from truestep.doctor.source.events import TraceEvent, TrainingLoop
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import names_in, walk

_CLOCKS = frozenset(
    {
        *("time.time", "time.perf_counter", "time.perf_counter_ns", "time.monotonic", "time.process_time"),
        *(
            "timeit.default_timer",
            "torch.cuda.Event",
            "torch.utils.benchmark.Timer",
            "torch.profiler.profile",
        ),
    }
)
_COUNTS = ("range", "trange", "itertools.repeat", "tqdm.trange")
_MADE = frozenset(f"torch.{name}" for name in operations(numbers="drawn filled"))


def measures_time_alone(module: SourceModule, loop: TrainingLoop) -> bool:
    """Tell a loop beside a clock that repeats a step on the same data, or on made-up ones, and looks at no loss."""
    home = module.home(loop.node)
    calls = home.directly_in(home.scope(loop.node), ast.Call)
    if not any(home.qualify(each.func) in _CLOCKS for each in calls) or not _repeats(home, loop.node):
        return False
    return all(_is_unread(module.home(each.node), each) for each in loop.of("backward"))


def _repeats(module: SourceModule, node: ast.AST) -> bool:
    """Tell a loop that counts, and takes nothing by its count or from what goes on."""
    if not isinstance(node, ast.For):
        return False
    iterated = node.iter.func if isinstance(node.iter, ast.Call) else node.iter
    if (module.qualify(iterated) or getattr(iterated, "id", "")) not in _COUNTS:
        return False
    counts = set(names_in(node.target))
    for each in module.inside(node, ast.Assign):
        read = set(names_in(each.value))
        made = {
            part
            for part in walk(each.value)
            if isinstance(part, ast.Call) and module.qualify(part.func) in _MADE
        }
        given = [
            part for part in walk(each.value) if isinstance(part, ast.Name) and not _is_called(module, part)
        ]
        if read & counts or not (given or made):
            return False  # by its count, or from a function that may give another batch each time
    return not any(counts & set(names_in(arg)) for each in module.inside(node, ast.Call) for arg in each.args)


def _is_called(module: SourceModule, name: ast.Name) -> bool:
    above = module.parents.get(name)
    return isinstance(above, ast.Call) and above.func is name


def _is_unread(module: SourceModule, backward: TraceEvent) -> bool:
    """Tell whether a loss is used for its backward alone."""
    loss = backward.receiver
    if not isinstance(loss, ast.Name):
        return isinstance(loss, ast.Call)
    own = {id(part) for part in walk(backward.node)}
    scope = module.scope(loss)
    return all(id(each) in own for each in module.reads(loss.id) if module.scope(each) is scope)
