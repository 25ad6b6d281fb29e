# SPDX-License-Identifier: Apache-2.0
"""What happened to one optimizer from one step to the next, and the tests that tell by their name when it steps."""

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from truestep.doctor.source.events import TraceEvent
from truestep.doctor.source.names import last_part
from truestep.doctor.source.optimizer_model_links import is_of_other_models
from truestep.doctor.source.value_contexts import CallFrames

_ASKED = ("update", "accum", "should_step", "do_step", "is_step", "optimizer_step", "sync_gradients")
_FLAG = re.compile(r"^(should|do|is|will|needs?)_\w*(step|update|sync)|^sync_gradients$")
_BETWEEN = ("zero_grad", "clip", "unscale", "scaler_update")


@dataclass
class AccumulationWindow:
    """The backwards of one step, and what was done to the gradients before, between and after them."""

    backwards: list[TraceEvent] = field(default_factory=list)
    done: list[tuple[int, TraceEvent]] = field(default_factory=list)  # how many backwards came before each
    step: TraceEvent | None = None  # None: the loop was over before

    def of(self, *kinds: str) -> list[tuple[int, TraceEvent]]:
        """Return what was done of these kinds, each with the number of backwards before it."""
        return [(before, event) for before, event in self.done if event.kind in kinds]

    def between(self, *kinds: str) -> list[tuple[int, TraceEvent]]:
        """Return what was done of these kinds after one backward and before another."""
        return [(before, event) for before, event in self.of(*kinds) if 0 < before < len(self.backwards)]

    @property
    def is_accumulating(self) -> bool:
        """Tell whether nothing is cleared between its backwards."""
        return not self.between("zero_grad")


def windows_of(happened: Iterable[TraceEvent], optimizer: str) -> list[AccumulationWindow]:
    """Return the windows of an optimizer; what came after its last step is the last one."""
    found = [AccumulationWindow()]
    for event in happened:
        if event.kind == "backward":
            found[-1].backwards.append(event)
        elif event.kind in _BETWEEN:
            found[-1].done.append((len(found[-1].backwards), event))
        elif event.kind == "step" and event.subject == optimizer:
            found[-1].step = event
            found.append(AccumulationWindow())
    return found


def without_updates_of_others(
    happened: list[TraceEvent], optimizer: str, contexts: CallFrames
) -> list[TraceEvent]:
    """Leave out each whole update of another optimizer: its clear, its backwards, and its step, with nobody else's between."""
    kept: list[TraceEvent] = []
    apart = _models_of_others(happened, optimizer, contexts)
    at = 0
    while at < len(happened):
        end = _end_of_update(happened, at, optimizer, apart)
        if end is None:
            kept.append(happened[at])
        at = at + 1 if end is None else end
    return kept


def _models_of_others(happened: list[TraceEvent], optimizer: str, contexts: CallFrames) -> set[str]:
    """Return the models that are cleared by themselves and have nothing to do with what an optimizer holds."""
    step = next((each for each in happened if each.kind == "step" and each.subject == optimizer), None)
    clears = {each.subject: each for each in happened if each.kind == "zero_grad" and each.made}
    stepped = {each.subject for each in happened if each.kind == "step"}
    others = [each for name, each in clears.items() if name not in stepped]
    return {each.subject for each in others if step and is_of_other_models(contexts, step, each)}


def _end_of_update(happened: list[TraceEvent], start: int, optimizer: str, apart: set[str]) -> int | None:
    """Return the place behind an update of another optimizer that begins here; None where none does."""
    subject = happened[start].subject
    if happened[start].kind != "zero_grad" or subject in ("", optimizer):
        return None
    has_backward = False
    for place in range(start + 1, len(happened)):
        event = happened[place]
        if event.kind == "step" and (
            event.subject == subject or (subject in apart and event.subject != optimizer)
        ):
            return place + 1 if has_backward else None
        if event.kind == "backward":
            has_backward = True
        elif event.kind not in ("clip", "unscale") and not (
            event.kind == "zero_grad" and event.subject == subject
        ):
            return None
    return None


def is_update_test(test: ast.expr) -> bool:
    """Tell a call or a flag that says by its name whether this batch steps; `not` before it is seen through."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return is_update_test(test.operand)
    if isinstance(test, ast.Call):
        return any(word in last_part(test.func) for word in _ASKED)
    return bool(_FLAG.search(last_part(test)))


def is_negated(test: ast.expr) -> bool:
    """Tell `not is_update(i)`."""
    return isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
