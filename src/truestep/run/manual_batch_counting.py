# SPDX-License-Identifier: Apache-2.0
"""Loops that count the batches themselves: no checkpoint has that count, so a run that goes on takes too many.

`for i in range(36): batch = next(endless)` begins at 0 again behind a stop, where the data goes on in its middle. It is told of in
the first bodies, by the source of the loops in which the batch was asked for.
"""

import ast
import inspect
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple

from truestep.core.call_site import is_at_loop_head
from truestep.core.source_lookup import Loop, enclosing_loops, source_tree
from truestep.core.user_frames import is_library_file
from truestep.run.fixed_length_passes import STEPS
from truestep.run.name_resolution import SourceNameResolver
from truestep.run.pass_batches import Batches, RemainingLoopNumbers
from truestep.run.running_loops import loops_of_run, running_loops
from truestep.run.state import RunState
from truestep.run.stream_cursor import StreamCursor

_BODIES = 2  # that are looked at: a batch may be taken before the loop, to look at it
_DEEPEST = 2  # a name that is made of a name that is made of the run's step
_ORDERS = (ast.Eq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)


class _RunningSource(NamedTuple):
    """Code of the user's that runs, with what its names stand for."""

    code: CodeType
    names: SourceNameResolver
    asked_early: set[tuple[CodeType, int]]
    """Where `run.step` was read before the run had gone to its place: it was 0 there, wherever the run goes on."""


class ManualLoopCounterCheck:
    """Looks at the loops around the first batches that lead."""

    def __init__(self, run: RunState) -> None:
        self._run, self._bodies = run, 0

    def body_begins(self, stream: StreamCursor) -> None:
        """A batch of the leader's is about to be given out, to the user's own code."""
        self._bodies += 1
        if (
            stream.passes == 2
            and stream.batch == 1
            and stream.limit is None
            and not self._run.cursor.is_in_epoch_body
        ):
            self._warn_of_manual_epoch_loop(stream)
        found = self._find_counting_loop() if self._bodies <= _BODIES and stream.name != STEPS else None
        if found is None:
            return
        place, written, count = found
        instead = f"for batch in run.batches({stream.label}, limit={count or '...'}):"
        if not self._run.cursor.is_in_epoch_body:
            instead += f", or for step in run.steps({count or '...'}): with next() in its body"
        self._run.screen.say_once(_SAID.format(place=place, written=written, instead=instead))

    def _warn_of_manual_epoch_loop(self, stream: StreamCursor) -> None:
        """Tell of `for epoch in range(4):` around passes; a loop that ends by something else may be no loop over epochs."""
        for frame, loops in running_loops(self._run):
            written = self._source_of_frame(frame)
            for bound in (_LoopBound(each, written) for each in reversed(loops)):
                if bound.counts and bound.count:
                    place = f"{Path(frame.f_code.co_filename).name}:{bound.line}"
                    said = _PASSES.format(
                        place=place, written=bound.written, count=bound.count, label=stream.label
                    )
                    self._run.screen.say_once(said)
                if bound.counts or (bound.is_of_run and not bound.is_pass):
                    return

    def _source_of_frame(self, frame: FrameType) -> "_RunningSource":
        names = SourceNameResolver({**frame.f_globals, **frame.f_locals}, {})
        return _RunningSource(frame.f_code, names, self._run.asked_early)

    def _find_counting_loop(self) -> tuple[str, str, str] | None:
        """Return where the loop is that counts, what is written there, and how many it takes."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            is_users = not is_library_file(frame.f_code.co_filename)
            bounds = self._loop_bounds_of_frame(frame) if is_users else []
            for at, bound in enumerate(bounds):
                if bound.is_of_run:
                    return None
                if bound.counts:
                    # of loops within each other the inner one alone is no whole count
                    is_whole = all(each.is_of_run for each in bounds[at + 1 :])
                    place = f"{Path(frame.f_code.co_filename).name}:{bound.line}"
                    return place, bound.written, bound.count if is_whole else ""
            # a pass in a loop of its own is found empty behind a stop, and so are the loops around it
            if is_users and is_at_loop_head(frame) and not _is_generator(frame):
                return None
            frame = frame.f_back
        return None

    def _loop_bounds_of_frame(self, frame: FrameType) -> list["_LoopBound"]:
        written = self._source_of_frame(frame)
        bounds = (_LoopBound(loop, written) for loop in self._loops_asking_for_batches(frame))
        # a pass in a generator of the user's gives its batches to whoever asks that for them
        return [each for each in bounds if not (each.is_pass and _is_generator(frame))]

    def _loops_asking_for_batches(self, frame: FrameType) -> Iterator[Loop]:
        """Yield the loops in which a batch is asked for, innermost first; of those in which the run itself was made, none."""
        loops = enclosing_loops(frame)[::-1]
        if is_at_loop_head(frame) and not _is_generator(frame):
            loops = [each for each in loops if _is_line_in_loop_head(each, frame.f_lineno)][:1]
        return (each for each in reversed(loops_of_run(self._run, frame)) if each in loops)


def _is_generator(frame: FrameType) -> bool:
    return bool(frame.f_code.co_flags & inspect.CO_GENERATOR)


def _is_line_in_loop_head(loop: Loop, line: int) -> bool:
    return isinstance(loop, ast.For) and loop.lineno <= line <= (loop.iter.end_lineno or 0)


class _LoopBound:
    """What ends a loop: the run, a count that begins anew with the process, or something that nobody knows."""

    def __init__(self, loop: Loop, written: _RunningSource) -> None:
        self._loop, self._source_of_frame = loop, written
        self.line, self.written = loop.lineno, ast.unparse(loop).partition("\n")[0]
        self.count = ""
        """How many batches it takes, as it is written."""
        head = loop.iter if isinstance(loop, ast.For) else loop.test
        self._head, self._calls = (
            [*ast.walk(head)],
            [each for each in ast.walk(head) if isinstance(each, ast.Call)],
        )
        self.counts, self.is_pass = False, self._has_run_call_in_head("batches")
        """Whether it goes through a pass of the run's."""
        self.is_of_run = False
        reads_state = any(map(self._is_run_state_attribute, ast.walk(loop)))
        if reads_state or self._has_run_call_in_head("epochs", "steps") or self._has_break_at_run_step():
            self.is_of_run = True
        elif self._has_break_at_counter() or self._is_cut_by_zip_or_islice():
            self.counts = not _has_next_ended_by_data(loop)
        elif self.is_pass or self._is_derived_from_run_position(head):
            self.is_of_run = True
        elif self._is_range_from_constant() or (
            isinstance(loop, ast.While) and self._is_counter_comparison(head)
        ):
            self.counts = not _has_next_ended_by_data(loop)

    def _has_run_call_in_head(self, *calls: str) -> bool:
        for each in self._head:
            if isinstance(each, ast.Attribute) and each.attr in calls and self._is_run_object(each.value):
                return True
            if isinstance(each, ast.Name):
                value = self._source_of_frame.names.value(each)
                if isinstance(value, Batches if "batches" in calls else RemainingLoopNumbers):
                    return True
        return False

    def _is_cut_by_zip_or_islice(self) -> bool:
        """Whether `zip(range(n), batches)` or `islice(batches, n)` ends it."""
        calls = [*self._calls, *self._calls_that_made_head()]
        if any(word.arg == "limit" for each in calls for word in each.keywords):
            return False
        for each in calls:
            if _last_name_of_call(each) == "islice" and len(each.args) > 1:
                self.count = ast.unparse(each.args[-1])
                return not self._is_derived_from_run_position(each.args[-1])
            if _last_name_of_call(each) == "zip" and any(map(_is_range_call, each.args)):
                return self._is_range_from_constant()
        return False

    def _calls_that_made_head(self) -> Iterator[ast.Call]:
        """Yield what is called where a variable that the loop goes through was made an `islice`."""
        head = self._loop.iter if isinstance(self._loop, ast.For) else None
        if isinstance(head, ast.Name) and isinstance(
            self._source_of_frame.names.value(head), itertools.islice
        ):
            for value in self._values_assigned_to(head.id):
                yield from (each for each in ast.walk(value) if isinstance(each, ast.Call))

    def _is_range_from_constant(self) -> bool:
        """Whether it goes through a range that begins at a number; one that begins at a variable may begin where the run is."""
        found = next((each for each in self._calls if _is_range_call(each) and each.args), None)
        if found is None or isinstance(self._loop, ast.While) or isinstance(found.args[0], ast.Starred):
            return False
        first, last = (
            (found.args[0], found.args[1]) if len(found.args) > 1 else (ast.Constant(0), found.args[0])
        )
        begins = first.value if isinstance(first, ast.Constant) else 0
        self.count = ast.unparse(last) if begins == 0 else f"{ast.unparse(last)} - {begins!r}"
        nodes = [*ast.walk(first)]
        made = [self._values_assigned_to(each.id) for each in nodes if isinstance(each, ast.Name)]
        nodes += [inner for values in made for value in values for inner in ast.walk(value)]
        is_anew = isinstance(first, ast.Constant) or any(map(self._is_run_step_before_update, nodes))
        return is_anew and not self._is_derived_from_run_position(last)

    def _has_break_at_run_step(self) -> bool:
        """Whether the body leaves the loop where the run has come to a step."""
        leaving = [
            each for each in self._loop.body if isinstance(each, ast.If) and _has_break_or_return(each)
        ]
        return any(self._is_run_step_or_epoch(each) for node in leaving for each in ast.walk(node.test))

    def _has_break_at_counter(self) -> bool:
        """Whether the body leaves the loop where `enumerate` or `n += 1` has come to a number."""
        return any(
            isinstance(each, ast.If)
            and _has_break_or_return(each)
            and self._is_counter_comparison(each.test, each)
            for each in self._loop.body
        )

    def _is_counter_comparison(self, test: ast.expr, leaving: ast.If | None = None) -> bool:
        if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], _ORDERS):
            return False
        sides, counters = (test.left, test.comparators[0]), self._counters_in_body()
        for one, other in (sides, sides[::-1]):
            counter = one.left if isinstance(one, ast.BinOp) else one
            if (
                isinstance(counter, ast.Name)
                and counter.id in counters
                and not self._is_derived_from_run_position(other)
            ):
                more = counters[counter.id]
                is_strict = isinstance(test.ops[0], (ast.Gt, ast.Lt))
                if isinstance(one, ast.BinOp):
                    more = None if more is None else _subtract_added_constant(more, one)
                if more is not None and leaving is not None:
                    more += 1 + is_strict - self._is_incremented_before(counter.id, leaving)
                    more -= not self._has_update_before_exit(leaving)
                elif more is not None:  # a loop that goes on while it holds
                    more += not is_strict
                self.count = "" if more is None else _sum_as_source_text(other, more)
                few = ("0", "1") if self.count else (0, 1)  # a look at one batch
                return (self.count or getattr(other, "value", None)) not in few
        return False

    def _counters_in_body(self) -> dict[str, int | None]:
        """Return the variables that go up by one in each body, with the number that each begins below; None where it is unknown."""
        added = [
            each.target
            for each in self._loop.body
            if isinstance(each, ast.AugAssign) and _is_increment_by_one(each)
        ]
        names = [
            each.id
            for each in added
            if isinstance(each, ast.Name) and self._is_initialized_to_constant(each.id)
        ]
        found = {name: _start_below_zero([*self._values_assigned_to(name)]) for name in names}
        calls = {_last_name_of_call(each): each for each in self._calls}
        if isinstance(self._loop, ast.For):
            target = self._loop.target
            if (call := calls.get("enumerate")) and isinstance(target, ast.Tuple):
                found[ast.unparse(target.elts[0])] = _start_below_zero(_counting_start_arguments(call, 1))
            elif call := calls.get("count"):
                found[ast.unparse(target)] = _start_below_zero(_counting_start_arguments(call, 0))
        return found

    def _is_incremented_before(self, name: str, leaving: ast.If) -> bool:
        before = self._loop.body[: self._loop.body.index(leaving)]
        return any(isinstance(each, ast.AugAssign) and _is_name(each.target, name) for each in before)

    def _has_update_before_exit(self, leaving: ast.If) -> bool:
        """Whether a body that leaves the loop has made its update; where none is written there, whether it has called anything."""
        place = self._loop.body.index(leaving)
        before, behind = self._loop.body[:place], self._loop.body[place + 1 :]
        if any(map(_has_update_call, (*before, *behind))):
            return any(map(_has_update_call, before))
        calls = [each for part in before for each in ast.walk(part) if isinstance(each, ast.Call)]
        return any(_last_name_of_call(each) != "next" for each in calls)

    def _is_initialized_to_constant(self, name: str) -> bool:
        stored = [
            each
            for statement in self._loop.body
            for each in ast.walk(statement)
            if isinstance(each, ast.Assign)
        ]
        values = self._values_assigned_to(name)
        is_set_within = any(each.value in values for each in stored)
        return not is_set_within and bool(values) and all(isinstance(each, ast.Constant) for each in values)

    def _values_assigned_to(self, name: str) -> list[ast.expr]:
        """Return all that is assigned to a variable in its file."""
        tree = source_tree(self._source_of_frame.code.co_filename)
        found = [each for each in (ast.walk(tree) if tree else ()) if isinstance(each, ast.Assign)]
        return [each.value for each in found if any(_is_name(target, name) for target in each.targets)]

    def _is_derived_from_run_position(self, node: ast.expr, depth: int = 0) -> bool:
        """Whether what is written asks the run where it stands, or what is left, or a name that was made of that."""
        for each in ast.walk(node):
            is_asked = self._is_run_step_or_epoch(each)
            if is_asked and (isinstance(self._loop, ast.While) or not self._is_run_step_before_update(each)):
                return True
            if isinstance(each, ast.Call) and _last_name_of_call(each) == "len" and each.args:
                return isinstance(self._source_of_frame.names.value(each.args[0]), Batches)
            if isinstance(each, ast.Name) and depth < _DEEPEST:
                return any(
                    self._is_derived_from_run_position(value, depth + 1)
                    for value in self._values_assigned_to(each.id)
                )
        return False

    def _is_run_step_or_epoch(self, node: ast.AST) -> bool:
        return (
            isinstance(node, ast.Attribute)
            and node.attr in ("step", "epoch")
            and self._is_run_object(node.value)
        )

    def _is_run_step_before_update(self, node: ast.AST) -> bool:
        if not isinstance(node, ast.Attribute) or not self._is_run_step_or_epoch(node):
            return False
        return (self._source_of_frame.code, node.lineno) in self._source_of_frame.asked_early

    def _is_run_state_attribute(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Attribute) and node.attr == "state" and self._is_run_object(node.value)

    def _is_run_object(self, node: ast.expr) -> bool:
        return type(self._source_of_frame.names.value(node)).__name__ == "Run"


def _start_below_zero(starts: list[ast.expr]) -> int | None:
    """Return how far below 0 counting begins, by what is written as its start; None where it is not one whole number."""
    values = [each.value if isinstance(each, ast.Constant) else None for each in starts]
    first = values[0]
    return -first if type(first) is int and values == [first] * len(values) else None


def _counting_start_arguments(call: ast.Call, place: int) -> list[ast.expr]:
    """Return what a call of `enumerate` or `count` begins with, 0 by default."""
    given = [*call.args[place : place + 1], *(each.value for each in call.keywords if each.arg == "start")]
    return given or [ast.Constant(0)]


def _subtract_added_constant(more: int, computed: ast.BinOp) -> int | None:
    """Return `more` for `counter + 1` in the place of the counter; None for what else is computed of it."""
    added = computed.right
    if not isinstance(added, ast.Constant) or type(added.value) is not int:
        return None
    signs = {ast.Add: -1, ast.Sub: 1}
    sign = signs.get(type(computed.op))
    return None if sign is None else more + sign * added.value


def _sum_as_source_text(number: ast.expr, more: int) -> str:
    """Return a number, or what stands for one, and so many more, as it is written."""
    if isinstance(number, ast.Constant) and type(number.value) is int:
        return str(number.value + more)
    written = ast.unparse(number)
    return written if more == 0 else f"{written} {'+' if more > 0 else '-'} {abs(more)}"


def _has_update_call(statement: ast.stmt) -> bool:
    calls = (each for each in ast.walk(statement) if isinstance(each, ast.Call))
    return any(_last_name_of_call(each) == "update" for each in calls)


def _last_name_of_call(call: ast.Call) -> str:
    return ast.unparse(call.func).rpartition(".")[2]


def _is_range_call(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and _last_name_of_call(node) in ("range", "trange")


def _is_increment_by_one(node: ast.AugAssign) -> bool:
    return isinstance(node.op, ast.Add) and isinstance(node.value, ast.Constant) and node.value.value == 1


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _has_break_or_return(node: ast.If) -> bool:
    return any(isinstance(each, ast.Break | ast.Return) for each in node.body)


def _has_next_ended_by_data(loop: Loop) -> bool:
    """Whether the body asks for a batch so that the end of the data ends the loop, whatever it counts."""
    for each in ast.walk(loop):
        if isinstance(each, ast.Call) and _last_name_of_call(each) == "next" and len(each.args) == 2:
            return True
        if isinstance(each, ast.ExceptHandler) and any(
            isinstance(one, ast.Break | ast.Return) for one in each.body
        ):
            return True
    return False


_SAID = (
    "{place}: `{written}` counts the batches that it takes, and no checkpoint has that count: a run that is stopped in it and goes "
    "on counts from its beginning again, and asks for more batches than a run that was not stopped. Write {instead}"
)
_PASSES = (
    "{place}: `{written}` goes through run.batches({label}) anew in each of its bodies, and only run.epochs counts epochs: "
    "run.epoch stays 0, and schedules, savings and metrics that go by the epoch see one epoch alone. Write for epoch in "
    "run.epochs({count}):"
)
