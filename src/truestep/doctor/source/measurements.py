# SPDX-License-Identifier: Apache-2.0
"""Where a model is applied for nothing but the number of its right answers, whatever the data are called."""

import ast
from collections.abc import Iterator

from truestep.doctor.library.operations import SAME_NUMBERS
from truestep.doctor.source.evaluations import TrainedModels
from truestep.doctor.source.events import Trace, TraceEvent
from truestep.doctor.source.module import SourceModule

_PICKS = "argmax"


def measurements_of(module: SourceModule, trace: Trace) -> Iterator[TraceEvent]:
    """Yield the forwards of what is trained whose classes are compared with others: `net(x).argmax(1) == y`."""
    loops = trace.learning_loops()
    trained = TrainedModels(module, loops)
    for forward in trace.of("forward"):
        apart = not any(forward.inside(loop.path) for loop in loops)  # of the batch it may be meant so
        if apart and isinstance(forward.node, ast.Call) and forward in trained:
            picked = [_picked(module, each) for each in _uses(module, forward.node)]
            if picked and all(each is not None and _is_compared(module, each) for each in picked):
                yield forward


def _uses(module: SourceModule, node: ast.expr) -> list[ast.expr]:
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


def _picked(module: SourceModule, node: ast.expr) -> ast.expr | None:
    """Return `node.argmax(1)` or `torch.argmax(node, 1)`."""
    outer = module.parents.get(node)
    if isinstance(outer, ast.Attribute) and outer.attr == _PICKS:
        call = module.parents.get(outer)
        return call if isinstance(call, ast.Call) and call.func is outer else None
    if isinstance(outer, ast.Call) and node in outer.args:
        return outer if module.qualify(outer.func) == f"torch.{_PICKS}" else None
    return None


def _is_compared(module: SourceModule, picked: ast.expr) -> bool:
    uses = _uses(module, picked)
    return bool(uses) and all(_is_side(module, each) for each in uses)


def _is_side(module: SourceModule, node: ast.expr) -> bool:
    """Tell a side of `==`, or what `.eq()` is called on or given."""
    outer = module.parents.get(node)
    if isinstance(outer, ast.Compare):
        return isinstance(outer.ops[0], ast.Eq)
    if isinstance(outer, ast.Call):
        return isinstance(outer.func, ast.Attribute) and outer.func.attr == "eq" and node in outer.args
    call = module.parents.get(outer) if isinstance(outer, ast.Attribute) else None
    if not isinstance(outer, ast.Attribute) or not isinstance(call, ast.Call) or call.func is not outer:
        return False
    return outer.attr == "eq" or (outer.attr in SAME_NUMBERS and _is_side(module, call))
