# SPDX-License-Identifier: Apache-2.0
"""What happens in a training, in order: events, the traces that they form, and the loops in which a net is trained.

A trace is what happens in one world: each test that can't be seen through has one value in all of it. The traces of
one entry know one another, so that "never" can mean: in no world.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from truestep.doctor.source.frames import LocatedExpression
from truestep.doctor.source.names import walk
from truestep.doctor.source.optimizer_model_links import is_of_other_models

if TYPE_CHECKING:
    from truestep.doctor.source.frames import CallFrame
    from truestep.doctor.source.library_batch_loops import LibraryRun
    from truestep.doctor.source.value_contexts import CallFrames


@dataclass(eq=False, slots=True)
class TraceFrame:
    """Something that encloses an event: a loop, a branch, a with block, a call."""

    kind: str  # loop, if, else, try, with, call
    node: ast.AST
    context: "CallFrame | None" = None  # the call in which a test is asked
    run: "LibraryRun | None" = None  # a loop that stands nowhere: a library runs it

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TraceFrame) and self.kind == other.kind and self.node is other.node

    def __hash__(self) -> int:
        return hash((self.kind, id(self.node)))


Path = tuple[TraceFrame, ...]


@dataclass(eq=False, slots=True)  # not frozen: that takes three times as long
class TraceEvent:
    """One call of the protocol."""

    kind: str
    node: ast.expr
    subject: str  # which optimizer, module, ...: the same text means the same object
    path: Path
    receiver: ast.expr | None = None  # the expression the subject was read from
    context: "CallFrame | None" = None  # the call in which it happens
    of_optimizer: bool = False  # the subject is one
    made: bool = False  # where the subject was made is in sight: another subject is another object
    waits: bool = False  # a library may have made the subject wait for the last batch of a window

    def loops(self) -> list[ast.AST]:
        """Return the loops around the event, outermost first."""
        return [frame.node for frame in self.path if frame.kind == "loop"]

    def inside(self, path: Path) -> bool:
        """Tell whether this happens within what that path leads to."""
        return self.path[: len(path)] == path

    def branches(self, beneath: Path = ()) -> Path:
        """Return the branches taken below a path: an event with any is not certain to happen."""
        return tuple(frame for frame in self.path[len(beneath) :] if frame.kind in ("if", "else"))

    def loop_path(self) -> Path:
        """Return the path up to and including the innermost loop; empty outside of any."""
        indices = [index for index, frame in enumerate(self.path) if frame.kind == "loop"]
        return self.path[: indices[-1] + 1] if indices else ()


@dataclass
class Trace:
    """The events from one entry, in order."""

    root: ast.AST
    events: list[TraceEvent] = field(default_factory=list)
    complete: bool = True
    world: Mapping[str, Any] = field(default_factory=dict)
    contexts: "CallFrames | None" = None
    _within: dict[tuple[Path, tuple[str, ...]], list[TraceEvent]] = field(default_factory=dict)
    _of_kinds: dict[tuple[str, ...], list[TraceEvent]] = field(default_factory=dict)
    _frames: dict[tuple[str, ...], list[TraceFrame]] = field(default_factory=dict)
    _ways: dict[tuple[str, ...], list[tuple[TraceEvent, list[ast.AST]]]] = field(default_factory=dict)
    # the value that a counter is given before a loop, and what was asked of the world for it
    counted: dict[TraceEvent, tuple[Any, tuple[str, ...]]] = field(default_factory=dict)
    remembered: dict[Path, Any] = field(default_factory=dict)  # what running its loops gave
    worlds: "list[Trace]" = field(default_factory=list)  # all traces of the entry, this among them

    @cached_property
    def _events_by_kind(self) -> dict[str, list[TraceEvent]]:
        found: dict[str, list[TraceEvent]] = {}
        for event in self.events:
            found.setdefault(event.kind, []).append(event)
        return found

    def of(self, *kinds: str) -> list[TraceEvent]:
        """Return the events of these kinds; to be asked when the trace is whole."""
        if len(kinds) == 1:
            return self._events_by_kind.get(kinds[0], [])
        if kinds not in self._of_kinds:
            self._of_kinds[kinds] = [event for event in self.events if event.kind in kinds]
        return self._of_kinds[kinds]

    def frames(self, *kinds: str) -> list[TraceFrame]:
        """Return what encloses events of these kinds, each once."""
        if kinds not in self._frames:
            known = {id(frame): frame for event in self.of(*kinds) for frame in event.path}
            self._frames[kinds] = list(dict.fromkeys(known.values()))
        return self._frames[kinds]

    def within(self, path: Path, *kinds: str) -> list[TraceEvent]:
        """Return the events of these kinds below a path."""
        key = (path, kinds)
        if key not in self._within:
            self._within[key] = list(events_inside(self.of(*kinds), path))
        return self._within[key]

    def ever(self, path: Path, *kinds: str) -> list[TraceEvent]:
        """Return the events of these kinds below a path, in whatever world they happen."""
        nodes = _loop_and_call_nodes(path)
        return [
            event
            for trace in self.worlds or [self]
            for event, around in trace._events_with_surroundings(*kinds)
            if around[: len(nodes)] == nodes
        ]

    def _events_with_surroundings(self, *kinds: str) -> list[tuple[TraceEvent, list[ast.AST]]]:
        """Return the events of these kinds, each with the loops and calls around it."""
        if kinds not in self._ways:
            self._ways[kinds] = [(event, _loop_and_call_nodes(event.path)) for event in self.of(*kinds)]
        return self._ways[kinds]

    @cached_property
    def order(self) -> dict[TraceEvent, int]:
        """The place of each event."""
        return {event: index for index, event in enumerate(self.events)}

    def training_loops(self) -> "list[TrainingLoop]":
        """Return each innermost loop that holds both a backward and the step of an optimizer after it."""
        return self._find_training_loops

    @cached_property
    def _find_training_loops(self) -> "list[TrainingLoop]":
        found: dict[tuple[Path, str], TrainingLoop] = {}
        for step in self.of("step"):
            for length in range(len(step.path), 0, -1):
                path = step.path[:length]
                if path[-1].kind == "loop" and self.within(path, "backward"):
                    loop = found.setdefault((path, step.subject), TrainingLoop(self, path, step.subject))
                    loop.steps.append(step)
                    break
        return list(found.values())

    def learning_loops(self) -> "list[TrainingLoop]":
        """Return the training loops, and the innermost loops in which a library does a whole update."""
        found: dict[tuple[Path, str], TrainingLoop] = {}
        for update in self.of("learn"):
            path = update.loop_path()
            if path:
                loop = found.setdefault((path, update.subject), TrainingLoop(self, path, update.subject))
                loop.steps.append(update)
        return [*self.training_loops(), *found.values()]


@dataclass
class TrainingLoop:
    """A loop in which one optimizer is stepped after a backward."""

    trace: Trace
    path: Path
    optimizer: str
    steps: list[TraceEvent] = field(default_factory=list)
    _inside: dict[tuple[str, ...], list[TraceEvent]] = field(default_factory=dict)

    def of(self, *kinds: str) -> list[TraceEvent]:
        """Return the events of these kinds in the loop."""
        if kinds not in self._inside:
            self._inside[kinds] = self.trace.within(self.path, *kinds)
        return self._inside[kinds]

    @property
    def node(self) -> ast.AST:
        """The loop statement."""
        return self.path[-1].node

    def clears(self, path: Path | None = None) -> list[TraceEvent]:
        """Return what may clear this optimizer's gradients below a path (here: the loop), in whatever world."""
        found = self.trace.ever(self.path if path is None else path, "zero_grad")
        return [event for event in found if not self._clears_other_optimizer(event)]

    def _clears_other_optimizer(self, clear: TraceEvent) -> bool:
        """Tell whether a clear is of another optimizer: one that is stepped, or one made elsewhere in sight."""
        if clear.subject == self.optimizer or not clear.subject:
            return False
        if not clear.made and self._subject_variable(clear) == self._subject_variable(self.steps[0]) != "":
            return False  # an inner function reads the variable, whatever it holds by then
        others = {event.subject for event in self.trace.of("step", "scaler_step")}
        if clear.subject in others or (clear.of_optimizer and clear.made and self.steps[0].made):
            return True
        contexts = self.trace.contexts
        return contexts is not None and clear.made and is_of_other_models(contexts, self.steps[0], clear)

    def _subject_variable(self, event: TraceEvent) -> str:
        """Return the variable by which an event names its subject."""
        if self.trace.contexts is None or event.receiver is None or event.context is None:
            return ""
        return self.trace.contexts.slot(LocatedExpression(event.receiver, event.context))

    def batch_path(self) -> Path:
        """Return the path of the loop itself, or of the next one around where it goes over optimizers: each steps in turn."""
        path = self.path
        while path and _gives_value_to(path[-1].node, self._optimizer_names()):
            path = next(iter(self.outer_loops(path)), ())
        return path or self.path

    def _optimizer_names(self) -> set[str]:
        """Return the names of which the optimizer that is stepped is made, here and where it was handed in."""
        step, contexts = self.steps[0], self.trace.contexts
        if step.receiver is None or step.context is None or contexts is None:
            return set()
        here = LocatedExpression(step.receiver, step.context)
        parts = [part for each in (here, contexts.origin(here)) for part in walk(each.node)]
        return {each.id for each in parts if isinstance(each, ast.Name)}

    def outer_loops(self, path: Path | None = None) -> list[Path]:
        """Return the paths of the loops around this one, or around another, innermost first."""
        path = self.path if path is None else path
        lengths = [index + 1 for index, frame in enumerate(path[:-1]) if frame.kind == "loop"]
        return [path[:length] for length in reversed(lengths)]


def _gives_value_to(loop: ast.AST, names: set[str]) -> bool:
    """Tell whether a loop gives one of these names its value."""
    target = loop.target if isinstance(loop, ast.For) else None
    return target is not None and any(
        isinstance(each, ast.Name) and each.id in names for each in walk(target)
    )


def events_inside(events: Iterable[TraceEvent], path: Path) -> Iterator[TraceEvent]:
    """Yield those of some events that happen within what a path leads to."""
    if not path:
        yield from events
        return
    last, length = path[-1].node, len(path)
    for event in events:
        # most paths are told apart by one frame
        if len(event.path) >= length and event.path[length - 1].node is last and event.path[:length] == path:
            yield event


def _loop_and_call_nodes(path: Path) -> list[ast.AST]:
    """Return the loops and calls of a path: these are the same in every world."""
    return [frame.node for frame in path if frame.kind in ("loop", "call")]


def are_exclusive(first: TraceEvent, second: TraceEvent) -> bool:
    """Tell whether two events stand in different arms of one `if`."""
    arms = {frame.node: frame.kind for frame in first.path if frame.kind in ("if", "else")}
    return any(
        frame.kind in ("if", "else") and arms.get(frame.node, frame.kind) != frame.kind
        for frame in second.path
    )
