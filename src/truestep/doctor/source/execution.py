# SPDX-License-Identifier: Apache-2.0
"""Runs the events of a loop for several iterations with a counter that counts.

So "steps every fourth batch" needs no pattern: `if (i + 1) % k == 0`, its inverse, a nested loop and a counter that
is reset are all run, and what is left is a straight line of backwards, clears and steps. The loops that a library runs
are run with its own numbers; what it holds back until the last batch of a window does not happen before.
"""

import ast

from truestep.doctor.source.accumulation_windows import (
    AccumulationWindow,
    is_negated,
    is_update_test,
    windows_of,
    without_updates_of_others,
)
from truestep.doctor.source.events import Path, Trace, TraceEvent, TraceFrame, events_inside
from truestep.doctor.source.frames import TOP, LocatedExpression, UnknownValue
from truestep.doctor.source.library_accumulators import Accumulating, accumulators_entered, num_batches
from truestep.doctor.source.loop_state import LoopState
from truestep.doctor.source.names import walk
from truestep.doctor.source.value_contexts import CallFrames

ASSUMED_WINDOW = 4  # where the number of micro-batches is an option
MAX_WINDOW = 64
MAX_EVENTS = 4_000
MAX_GROUPS = 40_000  # tests, inner loops and blocks gone through: loops in loops multiply them
# what is run; an evaluation in the loop is not
PLAYED = ("backward", "zero_grad", "step", "schedule", "count", "clip", "unscale", "scaler_update")


def execution_of(trace: Trace, path: Path) -> "Execution":
    """Return the run of a loop, made once for all who ask."""
    if path not in trace.remembered:
        known: list[Execution] = [each.remembered[path] for each in trace.worlds if path in each.remembered]
        same = next((run for run in known if run.holds_in(trace)), None)
        trace.remembered[path] = same or Execution(trace, path)
    found: Execution = trace.remembered[path]
    return found


class Execution:
    """One run of a loop."""

    def __init__(self, trace: Trace, path: Path) -> None:
        assert isinstance(trace.contexts, CallFrames)
        self.trace, self.path = trace, path
        self.contexts: CallFrames = trace.contexts
        self.is_certain = True  # no test had to be guessed
        self.is_named = False  # what a test that can't be computed asks for, its name alone tells
        self.has_window = False  # some test asks for a remainder or a counter
        self._num_counted = 0  # the tests around that a counter decides
        self.happened: list[TraceEvent] = []
        self.sizes = self._sizes_in_sight(trace)
        self.window = max((each for each in self.sizes if 1 < each <= MAX_WINDOW), default=ASSUMED_WINDOW)
        self.num_iterations = 2 * self.window + 1
        self.state = LoopState(self.window, self.num_iterations)
        self.added_to: dict[str, object] = {}  # counters that the loop adds to
        self.driven: set[str] = set()  # those that are the number of an iteration
        self.num_before_last = 0  # of what happened, before the last batch: there a window closes early
        self._place = 0, 1  # which iteration of how many
        self._num_entered = 0  # batches that a library counted
        self._closes = True  # it says that this one closes a window
        self._num_groups = 0
        self.inside = trace.within(path, *PLAYED)
        self._before = self._counter_events_before(trace)
        self.asked: frozenset[str] = frozenset()  # what decided on it, of all that a world chooses
        self._run_execution()
        self._before = {slot: self._before.get(slot, []) for slot in self.state.looked_up}

    def holds_in(self, trace: Trace) -> bool:
        """Tell whether the loop runs the same in another world: nothing that was looked at differs."""
        mine, other = self.trace.world, trace.world
        if any(mine.get(name, self) is not other.get(name, self) for name in {*mine, *other} & self.asked):
            return False
        if trace.within(self.path, *PLAYED) != self.inside or self._sizes_in_sight(trace) != self.sizes:
            return False
        before = self._counter_events_before(trace)
        return all(before.get(slot, []) == events for slot, events in self._before.items())

    def _run_execution(self) -> None:
        self.contexts.choose(self.trace.world, self.trace.root)
        self.contexts.running = self.state
        self.added_to = self._counters_inside()
        self.state.counters = dict(self.added_to)
        self.state.before, self.state.given_before = self._value_before, set(self._before)
        self._tell_num_updates()
        try:
            self._run_iterations(self.path[-1], self.inside, len(self.path), self.num_iterations)
        finally:
            self.contexts.running = None
        self.asked = frozenset(self.contexts.asked)

    def _counters_inside(self) -> dict[str, object]:
        """Return the counters that the loop adds a number to: where one begins changes no window but the first."""
        return {
            event.subject: 0
            for event in self.trace.within(self.path, "count")
            if isinstance(self.contexts.index.parents[event.node], ast.AugAssign)
        }

    def _counter_events_before(self, trace: Trace) -> dict[str, list[TraceEvent]]:
        """Return what gives counters their values before the loop, by their names."""
        order = trace.order
        first = next((order[event] for event in events_inside(trace.events, self.path)), 0)
        found: dict[str, list[TraceEvent]] = {}
        for event in trace.of("count"):
            if order[event] >= first:
                break
            found.setdefault(event.subject, []).append(event)
        return found

    def _value_before(self, slot: str) -> list[object]:
        """Return the last value that is known of a counter when the loop begins."""
        known, log = self.trace.counted, self.contexts.asked
        for event in reversed(self._before[slot]):
            if event not in known:  # the same before whichever loop: none is being run yet
                start = len(log)
                value = self._assigned_value(event, LoopState(self.window))
                known[event] = value, tuple(log[start:])
            value, asked = known[event]
            log.extend(asked)
            if not isinstance(value, UnknownValue):
                return [value]
        return []

    def _sizes_in_sight(self, trace: Trace) -> list[int]:
        """Return the numbers that tests ask for, and those that libraries were told."""
        self.contexts.choose(trace.world, trace.root)
        frames = trace.frames(*PLAYED)
        asked = [self._asked_modulus(frame) for frame in frames if frame.kind == "if"]
        entered = [
            each
            for frame in frames
            if frame.kind == "with"
            for each in accumulators_entered(self.contexts, frame)
        ]
        found = [*asked, *(num_batches(self.contexts, each) for each in entered)]
        return [each for each in found if each is not None and each > 0]

    def _asked_modulus(self, frame: TraceFrame) -> int | None:
        test = getattr(frame.node, "test", None)
        if isinstance(test, ast.Name):
            test = self.contexts.origin(LocatedExpression(test, frame.context or TOP)).node
        nodes = list(walk(test)) if test is not None else []
        asked = [node.right for node in nodes if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod)]
        asked += [node.comparators[0] for node in nodes if isinstance(node, ast.Compare)]
        values = [self.contexts.value(LocatedExpression(each, frame.context or TOP)) for each in asked[:1]]
        return values[0] if values and isinstance(values[0], int) else None

    # ── what an optimizer saw ─────────────────────────────────────────────────────────────────

    def windows(self, optimizer: str) -> list[AccumulationWindow]:
        """Return what happened between the steps of one optimizer, and after the last.

        Others that step too are left out with their whole updates; nothing where they have none of their own.
        """
        happened = without_updates_of_others(self.happened, optimizer, self.contexts)
        if len({event.subject for event in happened if event.kind == "step"}) != 1:
            return []
        return windows_of(happened, optimizer)

    def full_windows(self, optimizer: str) -> list[AccumulationWindow]:
        """Return the windows that are as long as they get, if that is several backwards."""
        windows = [each for each in self.windows(optimizer) if each.step is not None]
        longest = max((len(each.backwards) for each in windows), default=0)
        return [each for each in windows if len(each.backwards) == longest > 1]

    # ── playing ───────────────────────────────────────────────────────────────────────────────

    def _run_iterations(self, frame: TraceFrame, events: list[TraceEvent], depth: int, times: int) -> None:
        around = self._place
        for index in range(times):
            if depth == len(self.path) and index + 1 == times:
                self.num_before_last = len(self.happened)
            self._place = index, times
            self._set_loop_counter(frame, index, times)
            self._run_block(events, depth)
            if self._is_too_long():
                self.is_certain = self.trace.complete = False
                break
        self._place = around

    def _is_too_long(self) -> bool:
        return len(self.happened) > MAX_EVENTS or self._num_groups > MAX_GROUPS

    def _set_loop_counter(self, frame: TraceFrame, index: int, times: int) -> None:
        """Give what counts the iterations of a loop its value in this one."""
        node, context, run = frame.node, frame.context or TOP, frame.run
        if run is not None:
            for each in run.numbered:
                self._set_driven_counter(self.contexts.slot_of(each, each.arg, context), index)
            said = {"is last": index + 1 == times, "length": times, "batches": index + 1}
            self.state.progress |= {name: said[what] for name, what in run.progress.items() if what in said}
        elif isinstance(node, ast.For) and (found := _loop_counter_and_start(node)) is not None:
            name, start = found
            base = self.contexts.value(LocatedExpression(start, context)) if start is not None else 0
            if isinstance(base, int):
                self._set_driven_counter(self.contexts.slot(LocatedExpression(name, context)), base + index)

    def _set_driven_counter(self, slot: str, number: int) -> None:
        self.driven.add(slot)
        self.state.count(slot, [number])

    def _run_block(self, events: list[TraceEvent], depth: int) -> None:
        decided: dict[ast.AST, tuple[bool, bool]] = {}  # what a test gave, and whether it asked a counter
        at = 0
        while at < len(events):
            frame = events[at].path[depth] if len(events[at].path) > depth else None
            if frame is None:
                self._apply_event(events[at])
                at += 1
                continue
            end = at
            while end < len(events) and len(events[end].path) > depth and events[end].path[depth] == frame:
                end += 1
            self._run_group(frame, events[at:end], depth, decided)
            at = end

    def _run_group(
        self,
        frame: TraceFrame,
        events: list[TraceEvent],
        depth: int,
        decided: dict[ast.AST, tuple[bool, bool]],
    ) -> None:
        self._num_groups += 1
        if frame.kind == "loop":
            self._run_iterations(frame, events, depth + 1, self._num_iterations(frame))
        elif frame.kind in ("if", "else"):
            if frame.node not in decided:
                holds = self._is_branch_taken(frame, events)
                decided[frame.node] = holds, self.state.was_asked
            holds, counted = decided[frame.node]
            if holds is (frame.kind == "if"):
                self._num_counted += counted
                self._run_block(events, depth + 1)
                self._num_counted -= counted
        else:
            for each in accumulators_entered(self.contexts, frame) if frame.kind == "with" else ():
                self._enter_accumulation(each)
            self._run_block(events, depth + 1)

    def _enter_accumulation(self, found: Accumulating) -> None:
        """Count one more batch for a library: the last of a window closes it, and so does the last of the loader."""
        size = num_batches(self.contexts, found) or self.window
        index, times = self._place
        self._num_entered = 0 if index + 1 == times else self._num_entered + 1
        self._closes = self._num_entered % size == 0
        self.has_window = self.has_window or size > 1
        self.state.progress[found[0].asks] = self._closes

    def _num_iterations(self, frame: TraceFrame) -> int:
        """Return how often an inner loop runs: as often as it says, or once for each micro-batch of a window."""
        node, context = frame.node, frame.context or TOP
        if isinstance(node, ast.For) and isinstance(node.iter, ast.Call) and len(node.iter.args) == 1:
            value = self.contexts.value(LocatedExpression(node.iter.args[0], context))
            if isinstance(value, int) and getattr(node.iter.func, "id", "") == "range":
                return min(max(value, 0), MAX_WINDOW)
        return self.window

    def _is_branch_taken(self, frame: TraceFrame, events: list[TraceEvent]) -> bool:
        test = getattr(frame.node, "test", None)
        self.state.was_asked = False
        if test is None:
            return frame.kind == "else"  # a handler: nothing is raised
        found = self.contexts.test(LocatedExpression(test, frame.context or TOP))
        if not isinstance(found, UnknownValue):
            self.has_window = self.has_window or self.state.was_asked
            return bool(found)
        guarded = {event.kind for event in events}
        if is_update_test(test):  # by its name, it holds once in a window
            self.is_named = self.has_window = self.state.was_asked = True
            return self._is_last_of_window() is not is_negated(test)
        if guarded & {"zero_grad", "backward"} or ("step" in guarded and not self._num_counted):
            self.is_certain = False  # a guard of a window's step alone, as against overflow, is taken to hold
        return True

    def _is_last_of_window(self) -> bool:
        index, times = self._place
        return (index + 1) % self.window == 0 or index + 1 == times

    def _apply_event(self, event: TraceEvent) -> None:
        if event.kind == "count":
            value = self._assigned_value(event, self.state)
            self.state.count(event.subject, [] if isinstance(value, UnknownValue) else [value])
        elif self._closes or not event.waits:
            self.happened.append(event)
            if event.kind == "step":
                self._tell_num_updates()

    def _tell_num_updates(self) -> None:
        """Let a library say how often the optimizer stepped."""
        run = self.path[-1].run
        num_steps = sum(event.kind == "step" for event in self.happened)
        told = run.progress.items() if run is not None else ()
        self.state.progress |= {name: num_steps for name, what in told if what == "updates"}

    def _assigned_value(self, event: TraceEvent, state: LoopState) -> object:
        node, context = event.node, event.context or TOP
        statement = self.contexts.index.parents[node]
        if isinstance(statement, ast.AugAssign):
            whole = ast.BinOp(statement.target, statement.op, statement.value)
            return self.contexts.value_apart(LocatedExpression(whole, context), state)
        assert isinstance(statement, ast.Assign)
        return self.contexts.value_apart(LocatedExpression(statement.value, context), state)


def _loop_counter_and_start(loop: ast.For) -> tuple[ast.Name, ast.expr | None] | None:
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
