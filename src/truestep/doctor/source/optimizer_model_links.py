# SPDX-License-Identifier: Apache-2.0
"""Whether a model and what an optimizer holds have nothing to do with one another."""

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from truestep.doctor.source.frames import LocatedExpression
from truestep.doctor.source.names import last_part, walk

if TYPE_CHECKING:
    from truestep.doctor.source.events import TraceEvent
    from truestep.doctor.source.value_contexts import CallFrames

_TAKE = ("add_module", "register_module", "append")
_PARAMETERS = ("parameters", "named_parameters")


def is_of_other_models(contexts: "CallFrames", step: "TraceEvent", clear: "TraceEvent") -> bool:
    """Tell whether `net.zero_grad()` clears nothing of an optimizer: each model that it was given was made apart from net."""
    if None in (step.receiver, step.context, clear.receiver, clear.context):
        return False
    optimizer = _constructor_call(contexts, LocatedExpression(step.receiver, step.context))  # type: ignore[arg-type]
    cleared = _constructor_call(contexts, LocatedExpression(clear.receiver, clear.context))  # type: ignore[arg-type]
    if optimizer is None or cleared is None:
        return False
    held = [_constructor_call(contexts, each) for each in _models_given_to_optimizer(optimizer)]
    return bool(held) and all(
        each is not None
        and _is_separate_model(contexts, each, cleared)
        and not _is_submodule(contexts, cleared, each)
        for each in held
    )


def _constructor_call(contexts: "CallFrames", value: LocatedExpression) -> LocatedExpression | None:
    """Return the call of a class that made an object."""
    made = contexts.origin(value)
    return made if isinstance(made.node, ast.Call) else None


def _models_given_to_optimizer(optimizer: LocatedExpression) -> Iterator[LocatedExpression]:
    """Yield net of each `net.parameters()` in what made an optimizer."""
    for call in walk(optimizer.node):
        if (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Attribute)
            and call.func.attr in _PARAMETERS
        ):
            yield LocatedExpression(call.func.value, optimizer.context)


def _is_separate_model(contexts: "CallFrames", other: LocatedExpression, whole: LocatedExpression) -> bool:
    """Tell whether a model is no part of another: not made by its class, given to it, or put into it."""
    if other.node is whole.node or _is_submodule(contexts, other, whole):
        return False
    names = [each for each in walk(whole.node) if isinstance(each, (ast.Name, ast.Attribute, ast.Call))]
    parts = [contexts.origin(LocatedExpression(each, whole.context)).node for each in names]
    return other.node not in parts and not _is_put_somewhere(contexts, other)


def _is_submodule(contexts: "CallFrames", other: LocatedExpression, whole: LocatedExpression) -> bool:
    """Tell whether a model's own class makes another: `net.head`."""
    lineage = contexts.resolver.classes.lineage(contexts.class_of(whole))
    return contexts.index.enclosing(other.node, ast.ClassDef) in lineage


def _is_put_somewhere(contexts: "CallFrames", model: LocatedExpression) -> bool:
    """Tell whether a model, by its name, is given to an attribute or an item of something, or to a method, as add_module."""
    above = contexts.index.parents.get(model.node)
    names = {last_part(each) for each in getattr(above, "targets", ())}
    if not names:
        return True
    calls = [call for each in _TAKE for call in contexts.index.calls.get(each, ())]
    given = [argument for call in calls for argument in call.args]
    stores = [each for each in contexts.index.parents if isinstance(each, ast.Assign)]
    kept = [each.value for each in stores if not isinstance(each.targets[0], ast.Name)]
    return any(last_part(each) in names for each in [*given, *kept])
