# SPDX-License-Identifier: Apache-2.0
"""Runs the events of a loop for several iterations with a counter that counts.

So "steps every fourth batch" needs no pattern: `if (i + 1) % k == 0`, its inverse, a nested loop and a counter that
is reset are all run, and what is left is a straight line of backwards, clears and steps.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from truestep.doctor.source.contexts import TOP, CallFrames, LocatedExpression, UnknownValue
from truestep.doctor.source.events import Path, Trace, TraceEvent, TraceFrame
from truestep.doctor.source.names import walk

ASSUMED_WINDOW = 4  # where the number of micro-batches is an option
MAX_WINDOW = 64
MAX_EVENTS = 4_000
PLAYED = ("backward", "zero_grad", "step", "schedule", "count")  # an evaluation in the loop is not run


@dataclass(frozen=True)
class AccumulationWindow:
    """What happened to one optimizer from one step to the next."""

    backwards: tuple[TraceEvent, ...]
    clears: tuple[tuple[int, TraceEvent], ...]  # how many backwards came before each
    step: TraceEvent | None  # None: the loop was over before

    @property
    def adds_up(self) -> bool:
        """Tell whether nothing is cleared between its backwards."""
        return all(before in (0, len(self.backwards)) for before, _ in self.clears)


def execution_of(trace: Trace, path: Path) -> "Execution":
    """Return the run of a loop, made once for all who ask."""
    if path not in trace.remembered:
        trace.remembered[path] = Execution(trace, path)
    found: Execution = trace.remembered[path]
    return found


class Execution:
    """One run of a loop."""

    def __init__(self, trace: Trace, path: Path) -> None:
        assert isinstance(trace.contexts, CallFrames)
        self.trace, self.path = trace, path
        self.contexts: CallFrames = trace.contexts
        self.is_certain = True  # no test had to be guessed
        self.has_window = False  # some test asks for a remainder or a counter
        self._num_counted = 0  # the tests around that a counter decides
        self.window = 1
        self.happened: list[TraceEvent] = []
        self._run()

    def _run(self) -> None:
        contexts = self.contexts
        contexts.choose(self.trace.world)
        contexts.counters = {**self._counted_inside(), **dict(self._before())}
        self.window = self._window_size()
        self.num_iterations = 2 * self.window + 1
        contexts.assumed = (self.window, self.num_iterations)
        inside = self.trace.within(self.path, *PLAYED)
        try:
            self._loop(self.path[-1], inside, len(self.path), self.num_iterations)
        finally:
            contexts.counters, contexts.assumed = {}, None

    def _counted_inside(self) -> dict[str, object]:
        """Return the counters that the loop adds a number to: where one begins changes no window but the first."""
        return {
            event.subject: 0
            for event in self.trace.within(self.path, "count")
            if isinstance(self.contexts.index.parents[event.node], ast.AugAssign)
        }

    def _before(self) -> Iterator[tuple[str, object]]:
        """Yield the counters with the values that they have when the loop begins."""
        order, known = self.trace.order, self.trace.counted
        first = next((order[event] for event in self.trace.events if event.inside(self.path)), 0)
        for event in self.trace.of("count"):
            if order[event] >= first:
                return
            if event not in known:  # the same before whichever loop: none is being run yet
                known[event] = self._assigned(event)
            if not isinstance(known[event], UnknownValue):
                yield event.subject, known[event]

    def _window_size(self) -> int:
        sizes = [self._modulus(frame) for frame in self.trace.tests(*PLAYED)]
        known = [each for each in sizes if each is not None and 1 < each <= MAX_WINDOW]
        return max(known, default=ASSUMED_WINDOW)

    def _modulus(self, frame: TraceFrame) -> int | None:
        test = getattr(frame.node, "test", None)
        if isinstance(test, ast.Name):
            test = self.contexts.origin(LocatedExpression(test, frame.context or TOP)).node
        nodes = list(walk(test)) if test is not None else []
        asked = [node.right for node in nodes if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod)]
        asked += [node.comparators[0] for node in nodes if isinstance(node, ast.Compare)]
        values = [self.contexts.value(LocatedExpression(each, frame.context or TOP)) for each in asked[:1]]
        return values[0] if values and isinstance(values[0], int) else None

    # ── playing ───────────────────────────────────────────────────────────────────────────────

    def _loop(self, frame: TraceFrame, events: list[TraceEvent], depth: int, times: int) -> None:
        node, context = frame.node, frame.context or TOP
        for index in range(times):
            if isinstance(node, ast.For) and (found := _counted(node)) is not None:
                name, start = found
                base = self.contexts.value(LocatedExpression(start, context)) if start is not None else 0
                if isinstance(base, int):
                    self.contexts.counters[self.contexts.slot(LocatedExpression(name, context))] = (
                        base + index
                    )
            self._block(events, depth)
            if len(self.happened) > MAX_EVENTS:
                self.is_certain = False
                return

    def _block(self, events: list[TraceEvent], depth: int) -> None:
        decided: dict[ast.AST, tuple[bool, bool]] = {}  # what a test gave, and whether it asked a counter
        at = 0
        while at < len(events):
            frame = events[at].path[depth] if len(events[at].path) > depth else None
            if frame is None:
                self._happen(events[at])
                at += 1
                continue
            end = at
            while end < len(events) and len(events[end].path) > depth and events[end].path[depth] == frame:
                end += 1
            self._group(frame, events[at:end], depth, decided)
            at = end

    def _group(
        self,
        frame: TraceFrame,
        events: list[TraceEvent],
        depth: int,
        decided: dict[ast.AST, tuple[bool, bool]],
    ) -> None:
        if frame.kind == "loop":
            self._loop(frame, events, depth + 1, self._times(frame))
        elif frame.kind in ("if", "else"):
            if frame.node not in decided:
                holds = self._holds(frame, events)
                decided[frame.node] = holds, self.contexts.asked_counter
            holds, counted = decided[frame.node]
            if holds is (frame.kind == "if"):
                self._num_counted += counted
                self._block(events, depth + 1)
                self._num_counted -= counted
        else:
            self._block(events, depth + 1)

    def _times(self, frame: TraceFrame) -> int:
        """Return how often an inner loop runs: as often as it says, or once for each micro-batch of a window."""
        node, context = frame.node, frame.context or TOP
        if isinstance(node, ast.For) and isinstance(node.iter, ast.Call) and len(node.iter.args) == 1:
            value = self.contexts.value(LocatedExpression(node.iter.args[0], context))
            if isinstance(value, int) and getattr(node.iter.func, "id", "") == "range":
                return min(max(value, 0), MAX_WINDOW)
        return self.window

    def _holds(self, frame: TraceFrame, events: list[TraceEvent]) -> bool:
        test = getattr(frame.node, "test", None)
        self.contexts.asked_counter = False
        if test is None:
            return frame.kind == "else"  # a handler: nothing is raised
        found = self.contexts.test(LocatedExpression(test, frame.context or TOP))
        if not isinstance(found, UnknownValue):
            self.has_window = self.has_window or self.contexts.asked_counter
            return bool(found)
        guarded = {event.kind for event in events}
        if guarded & {"zero_grad", "backward"} or ("step" in guarded and not self._num_counted):
            self.is_certain = False  # a guard of a window's step alone, as against overflow, is taken to hold
        return True

    def _happen(self, event: TraceEvent) -> None:
        if event.kind == "count":
            value = self._assigned(event)
            if isinstance(value, UnknownValue):
                self.contexts.counters.pop(event.subject, None)
            else:
                self.contexts.counters[event.subject] = value
        else:
            self.happened.append(event)

    def _assigned(self, event: TraceEvent) -> object:
        node, context = event.node, event.context or TOP
        statement = self.contexts.index.parents[node]
        if isinstance(statement, ast.AugAssign):
            whole = ast.BinOp(statement.target, statement.op, statement.value)
            return self.contexts.value(LocatedExpression(whole, context))
        assert isinstance(statement, ast.Assign)
        return self.contexts.value(LocatedExpression(statement.value, context))

    def full_windows(self, optimizer: str) -> list[AccumulationWindow]:
        """Return the windows that are as long as they get, if that is several backwards."""
        windows = [each for each in self.windows(optimizer) if each.step is not None]
        longest = max((len(each.backwards) for each in windows), default=0)
        return [each for each in windows if len(each.backwards) == longest > 1]

    # ── what an optimizer saw ─────────────────────────────────────────────────────────────────

    def windows(self, optimizer: str) -> list[AccumulationWindow]:
        """Return what happened between the steps of one optimizer, and after the last; nothing if others step too."""
        if len({event.subject for event in self.happened if event.kind == "step"}) != 1:
            return []
        found: list[AccumulationWindow] = []
        backwards: list[TraceEvent] = []
        clears: list[tuple[int, TraceEvent]] = []
        for event in self.happened:
            if event.kind == "backward":
                backwards.append(event)
            elif event.kind == "zero_grad":
                clears.append((len(backwards), event))
            elif event.kind == "step" and event.subject == optimizer:
                found.append(AccumulationWindow(tuple(backwards), tuple(clears), event))
                backwards, clears = [], []
        return [*found, AccumulationWindow(tuple(backwards), tuple(clears), None)]


def _counted(loop: ast.For) -> tuple[ast.Name, ast.expr | None] | None:
    """Return the counter of a loop, and where it starts: of `enumerate(...)`, `range(...)`, and through tqdm."""
    call = loop.iter
    while isinstance(call, ast.Call) and call.args and isinstance(call.args[0], ast.Call):
        if isinstance(call.func, ast.Name) and call.func.id in ("enumerate", "range"):
            break
        call = call.args[0]
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        return None
    target = loop.target
    if call.func.id == "enumerate" and isinstance(target, ast.Tuple) and isinstance(target.elts[0], ast.Name):
        named = next((word.value for word in call.keywords if word.arg == "start"), None)
        return target.elts[0], call.args[1] if len(call.args) > 1 else named
    if call.func.id == "range" and isinstance(target, ast.Name):
        return target, call.args[0] if len(call.args) > 1 else None
    return None
