# SPDX-License-Identifier: Apache-2.0
"""Objects of libraries that count the batches of an update: how many, what they divide by, and what waits for them."""

import ast
from collections.abc import Iterator

from truestep.doctor.library.loops import ACCUMULATORS, TAKES_BACKWARD, LibraryAccumulator
from truestep.doctor.source.events import TraceEvent, TraceFrame
from truestep.doctor.source.frames import TOP, CallFrame, LocatedExpression, UnknownValue
from truestep.doctor.source.names import last_part
from truestep.doctor.source.value_contexts import CallFrames
from truestep.doctor.source.value_origins import argument, has_star_args

Accumulating = tuple[
    LibraryAccumulator, LocatedExpression
]  # with what made the object, as far as that is in sight


def accumulating(contexts: CallFrames, method: ast.expr, context: CallFrame) -> Accumulating | None:
    """Return whose method this is, if an accumulating object's; by its name where nothing in sight made it."""
    if not isinstance(method, ast.Attribute):
        return None
    made = contexts.origin(LocatedExpression(method.value, context))
    known = contexts.resolver.names.qualify(made.node.func) if isinstance(made.node, ast.Call) else None
    for name, row in ACCUMULATORS.items():
        if known == name:
            return row, made
        called = last_part(method.value)
        if not isinstance(made.node, ast.Call) and called.lstrip("_") == row.named:
            return row, made
    return None


def accumulators_entered(contexts: CallFrames, frame: TraceFrame) -> Iterator[Accumulating]:
    """Yield the accumulating objects that a `with` opens one batch of."""
    for item in getattr(frame.node, "items", ()):
        manager = item.context_expr
        if isinstance(manager, ast.Call):
            found = accumulating(contexts, manager.func, frame.context or TOP)
            if found is not None and getattr(manager.func, "attr", "") == found[0].enters:
                yield found


def has_accumulation_option(found: Accumulating) -> bool:
    """Tell whether an accumulating object was told of how many batches its windows are."""
    row, made = found
    return isinstance(made.node, ast.Call) and any(
        argument(made.node, None, each) is not None for each in (row.option, row.plugin[0])
    )


def num_batches(contexts: CallFrames, found: Accumulating) -> int | None:
    """Return of how many batches the windows of an accumulating object are; None where that is out of sight."""
    row, made = found
    if not isinstance(made.node, ast.Call) or has_star_args(made.node):
        return None
    option = argument(made.node, None, row.option)
    home = made.context
    if option is None and (plugin := argument(made.node, None, row.plugin[0])) is not None:
        given = contexts.origin(LocatedExpression(plugin, home))
        option = argument(given.node, 0, row.plugin[1]) if isinstance(given.node, ast.Call) else None
        if option is None:
            return None
        home = given.context
    value = contexts.value(LocatedExpression(option, home)) if option is not None else 1
    return value if isinstance(value, int) and not isinstance(value, UnknownValue) and value > 0 else None


def can_wait_for_window(contexts: CallFrames) -> bool:
    """Tell whether anything of the program may wait for the end of a window."""
    return any(row.enters in contexts.index.calls for row in ACCUMULATORS.values())


def library_loss_divisor(contexts: CallFrames, backward: TraceEvent) -> int | None:
    """Return by how much a library divides the loss of a backward; None where that is out of sight."""
    call = backward.node
    method = getattr(call, "func", None)
    handed = isinstance(call, ast.Call) and bool(call.args) and isinstance(method, ast.Attribute)
    if not handed or not isinstance(method, ast.Attribute) or method.attr == "manual_backward":
        return 1
    context = backward.context or TOP
    found = accumulating(contexts, method, context)
    if found is not None:
        return num_batches(contexts, found)
    made = contexts.origin(LocatedExpression(method.value, context)).node
    known = contexts.resolver.names.qualify(made.func) if isinstance(made, ast.Call) else None
    return 1 if known in TAKES_BACKWARD else None
