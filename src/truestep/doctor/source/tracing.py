# SPDX-License-Identifier: Apache-2.0
"""Follows a program from a place where it is entered, into every call, once for each world.

It walks statements and arguments in the order of evaluation, and enters calls with their arguments. A test that these
decide is no branch. The tests left over that guard what happens are given values, the same throughout: each choice is
a world. What one place gives does not depend on which others were followed before.
"""

import ast
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from truestep.doctor.source.branch_choices import (
    UndecidedTests,
    VaryingNames,
    have_same_events,
    variables_asked_by,
)
from truestep.doctor.source.call_replays import CallReplays, FollowedCall
from truestep.doctor.source.decorators import Decoration, calls_parameter, decorations
from truestep.doctor.source.eventful_functions import EventfulFunctions
from truestep.doctor.source.eventful_parts import EventfulParts
from truestep.doctor.source.events import Path, Trace, TraceEvent, TraceFrame
from truestep.doctor.source.frames import TOP, CallFrame, LocatedExpression, UnknownValue
from truestep.doctor.source.library_accumulators import can_wait_for_window
from truestep.doctor.source.library_batch_loops import (
    LibraryRun,
    library_run_of_method,
    library_runs_of_engines,
)
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import EXITS, Function, Index, assignment_target, walk
from truestep.doctor.source.protocol_calls import Found, Protocol, is_count
from truestep.doctor.source.resolving import Resolver
from truestep.doctor.source.value_contexts import CallFrames, forward_frame

Root = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef  # where a program is entered
MAX_CALLS_DEEP = 8
MAX_EVENTS = 5_000  # of one entry, and
MAX_CALLS = 3_000  # of one entry: beyond these it is followed no further, and the checks abstain
_QUIET = ("unknown", "forward", "count")  # what a branch may hold without its test being worth a world
_UPDATE = ("backward", "step", "zero_grad", "scaler_update", "learn")  # what is worth one before all else

# what is run for its expressions alone, or not where it stands
_FUNCTIONS = frozenset((ast.FunctionDef, ast.AsyncFunctionDef))
_SIMPLE = _FUNCTIONS | {
    ast.Expr, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Delete, ast.Assert, ast.Import, ast.ImportFrom, ast.Global,
    ast.Nonlocal, ast.Pass,
}  # fmt: skip


class ProgramTracer:
    """Walks from a place where a program is entered, and notes which functions were entered on the way."""

    def __init__(self, modules: list[SourceModule], resolver: Resolver) -> None:
        self.modules = modules
        self.resolver = resolver
        self.contexts = CallFrames(resolver)
        self.protocol = Protocol(modules[0])
        self.may_wait = can_wait_for_window(self.contexts)
        self.engines = library_runs_of_engines(resolver)
        self.varying = VaryingNames(resolver)
        matter = EventfulFunctions(modules, resolver, self.protocol, self.engines)
        self.eventful = matter.found
        self.runs = library_runs_by_method(modules[0], self.eventful)
        self.varying.numbered.update(*(run.numbered for run in self.runs.values()))
        self.parts = EventfulParts(matter)
        self.blocks: dict[int, list[ast.stmt]] = {}  # by the identity of the list in the tree
        self.num_calls = 0
        self.entered: set[Function] = set()  # from the place that was followed last
        self.entered_by: dict[ast.AST, set[Function]] = {}  # from any place: what each call was followed into
        self.entered_from: dict[Function, set[ast.AST]] = {}  # and the other way round
        self.stack: list[Function] = []
        self.decorated: list[
            tuple[Function, list[Decoration], CallFrame]
        ] = []  # whose wrappers are being run
        self.trace = Trace(ast.Module([], []))
        self.guards = UndecidedTests()
        self.replays = CallReplays()
        self.frames: dict[tuple[str, ast.AST, CallFrame | None], TraceFrame] = {}
        self.staying: TraceFrame | None = None  # the arm that goes on, where the other one leaves
        self.yields: list[
            tuple[Function, Callable[[], None]]
        ] = []  # the with blocks whose managers are being run

    def trace_each_world(self, root: Root) -> list[Trace]:
        """Return one trace for each world in which something else happens; none where nothing does."""
        self.entered = set()
        try:
            found = self._trace_worlds(root, root.body)
        except RecursionError:  # the checks abstain on what could not be followed; the rest is judged
            self.yields.clear()
            found = [Trace(root, events=self.trace.events[:1], complete=False)]
        return [trace for trace in found if any(event.kind != "count" for event in trace.events)]

    def _trace_worlds(self, root: Root, body: list[ast.stmt]) -> list[Trace]:
        self.guards, self.replays, self.frames = UndecidedTests(), CallReplays(), {}
        context = CallFrame(root) if isinstance(root, Function) else TOP
        first = self.run(root, body, {}, context)
        found: list[Trace] = []
        for world in self.guards.worlds() if first.complete else [{}]:
            trace = self.run(root, body, world, context) if world else first
            if not any(have_same_events(trace, other) for other in found):
                found.append(trace)
        for trace in found:
            trace.worlds = found
        return found

    def run(self, root: Root, body: list[ast.stmt], world: dict[str, Any], context: CallFrame) -> Trace:
        """Go once from one place through the program, in one world."""
        self.contexts.choose(world, root)
        self.trace = Trace(root, world=world, contexts=self.contexts)
        self.num_calls = 0
        self.stack = [root] if isinstance(root, Function) else []
        if (run := self.runs.get(root)) is not None:
            self.go_through_library_run(run, (), TOP)
        else:
            self.statements(body, (), context)
        return self.trace

    def frame(self, kind: str, node: ast.AST, context: CallFrame | None = None) -> TraceFrame:
        """Return the frame of something that encloses events: the same one in every world."""
        key = (kind, node, context)
        if key not in self.frames:
            self.frames[key] = TraceFrame(kind, node, context)
        return self.frames[key]

    def go_through_library_run(self, run: LibraryRun, path: Path, context: CallFrame) -> None:
        """Go through what a library calls for each batch, in a loop, and around it."""
        loop = TraceFrame("loop", run.trains, context, run)
        for each in run.calls:
            here = (*path, loop) if each.for_each_batch else path
            if each.every is not None:
                here = (*here, self.frame("if", each.every, context))
            self.note_entered(each.function, run.trains)
            self.body(each.function, here, self.contexts.enter_for(each.function, run.trains, context, {}))

    def body(self, function: Function, path: Path, inside: CallFrame) -> None:
        """Go through a function in the call in which it runs."""
        self.stack.append(function)
        if isinstance(function, ast.Lambda):
            self.expressions(function.body, path, inside)
        else:
            self.statements(function.body, path, inside)
        self.stack.pop()

    # ── statements ────────────────────────────────────────────────────────────────────────────

    def statements(self, body: list[ast.stmt], path: Path, context: CallFrame, start: int = 0) -> bool:
        """Run a block from one of its statements on, and tell whether it leaves its function or loop for certain."""
        busy = self.busy(body)
        for place in range(start, len(busy)):
            if len(self.trace.events) >= MAX_EVENTS or self.num_calls >= MAX_CALLS:
                self.trace.complete = False
                return False
            self.staying = None
            if self.statement(busy[place], path, context):
                return True
            if self.staying is not None:
                return self.statements(body, (*path, self.staying), context, place + 1)
        if body and (not busy or body[-1] is not busy[-1]):
            self.staying = None  # something stands behind the arm, although nothing happens there
        return False

    def busy(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """Return the statements of a block in which something may happen, or which leave it."""
        if id(body) not in self.blocks:
            self.blocks[id(body)] = [
                each for each in body if type(each) not in _SIMPLE or self.parts.of(each)
            ]
        return self.blocks[id(body)]

    def statement(self, node: ast.stmt, path: Path, context: CallFrame) -> bool:
        """Run a statement, and tell whether it leaves its block for certain."""
        if type(node) in _SIMPLE:  # most are
            if type(node) not in _FUNCTIONS:  # a function's body happens where it is called
                self.expressions(node, path, context)
            return False
        match node:
            case ast.ClassDef():
                self.statements(node.body, path, context)
            case ast.For() | ast.AsyncFor():
                self.expressions(node.iter, path, context)
                self.statements(node.body, (*path, self.frame("loop", node, context)), context)
                self.statements(node.orelse, path, context)
            case ast.While():
                inner = (*path, self.frame("loop", node, context))
                self.expressions(node.test, inner, context)
                self.statements(node.body, inner, context)
            case ast.If():
                return self.branch(node, path, context)
            case ast.With() | ast.AsyncWith():
                self.block(node, 0, path, context)
            case ast.Try():
                self.attempt(node, path, context)
            case _:
                self.expressions(node, path, context)
        return isinstance(node, EXITS)

    def block(self, node: ast.With | ast.AsyncWith, index: int, path: Path, context: CallFrame) -> None:
        """Run a with block inside of its managers: a generator's at its yield, an object's between enter and exit."""
        if index == len(node.items):
            self.statements(node.body, (*path, self.frame("with", node, context)), context)
            return

        def run_inner_block() -> None:
            self.block(node, index + 1, path, context)

        manager = node.items[index].context_expr
        waiting = len(self.yields)
        target = self.resolver.functions.target(manager) if isinstance(manager, ast.Call) else None
        if target is not None and is_generator(target, self.resolver.index):
            self.yields.append((target, run_inner_block))
            self.expressions(manager, path, context)
            if len(self.yields) > waiting:  # it was not followed to its yield
                self.yields.pop()
                run_inner_block()
            return
        self.expressions(manager, path, context)
        owner = self.contexts.class_of(self.contexts.origin(LocatedExpression(manager, context)))
        self.run_manager_hook("__enter__", owner, manager, path, context)
        run_inner_block()
        self.run_manager_hook("__exit__", owner, manager, path, context)

    def run_manager_hook(
        self, name: str, owner: ast.ClassDef | None, manager: ast.expr, path: Path, context: CallFrame
    ) -> None:
        """Go through what a with block calls of an object of the program."""
        function = self.resolver.classes.method(owner, name)
        if function is not None:
            known = {"self": LocatedExpression(manager, context)}
            self.enter(self.contexts.enter_for(function, manager, context, known), manager, path)

    def branch(self, node: ast.If, path: Path, context: CallFrame) -> bool:
        """Run the arm that its test decides on, or both: then the test may be worth a world."""
        self.expressions(node.test, path, context)
        holds = self.contexts.test(LocatedExpression(node.test, context))
        if not isinstance(holds, UnknownValue):
            return self.statements(node.body if holds else node.orelse, path, context)
        before = len(self.trace.events)
        arms = self.frame("if", node, context), self.frame("else", node, context)
        leaves = self.statements(node.body, (*path, arms[0]), context)
        leaves_else = self.statements(node.orelse, (*path, arms[1]), context)
        self.staying = (
            arms[leaves] if leaves is not leaves_else and self.varying.is_asked_by(node.test) else None
        )
        inside = {event.kind for event in self.trace.events[before:]}
        if not inside.issubset(_QUIET):
            for name, values in variables_asked_by(
                self.contexts, self.varying, LocatedExpression(node.test, context)
            ):
                self.guards.add(name, values, not inside.isdisjoint(_UPDATE))
        return leaves and leaves_else

    def attempt(self, node: ast.Try, path: Path, context: CallFrame) -> None:
        """Run a block, and each handler as a branch."""
        self.statements(node.body, path, context)
        for handler in node.handlers:
            self.statements(handler.body, (*path, self.frame("if", node, context)), context)
        self.statements(node.orelse, path, context)
        self.statements(node.finalbody, path, context)

    # ── expressions ───────────────────────────────────────────────────────────────────────────

    def expressions(self, node: ast.AST, path: Path, context: CallFrame) -> None:
        """Visit what an expression evaluates, arguments before the call they are for."""
        for each, around in self.parts.of(node):
            here = (*path, *(self.frame(kind, frame, context) for kind, frame in around)) if around else path
            if isinstance(each, ast.Call):
                self.call(each, here, context)
            elif isinstance(each, (ast.Assign, ast.AugAssign)):
                self.add(self.protocol.assignment(each), here, context)
                self.count(each, here, context)
            elif self.yields and self.stack[-1:] == [self.yields[-1][0]]:
                _, rest = self.yields.pop()
                rest()

    def call(self, call: ast.Call, path: Path, context: CallFrame) -> None:
        """Note what a call does, and go through what it runs."""
        if self.enter_decorated(call, path):
            return
        closure = self.protocol.closure(call)
        if closure is not None:
            self.enter(self.contexts.enter(closure, call, context), call, path)
        if call in self.engines:
            self.go_through_library_run(self.engines[call], path, context)
        if self.protocol.is_protocol(call):
            self.add(self.protocol.call(call), path, context)
            return
        inside = self.contexts.entered(call, context) or forward_frame(self.contexts, call, context)
        if inside is None:
            self.add(self.protocol.call(call), path, context)
            return
        if self.protocol.is_forward(call):
            self.add([("forward", call, call.func)], path, context)
        self.enter(inside, call, path)

    def enter(self, inside: CallFrame, call: ast.expr, path: Path) -> None:
        """Go through a function that is called, by what its decorators put around it."""
        assert inside.function is not None
        self.enter_through(decorations(self.resolver, inside.function), inside, call, path)

    def enter_through(self, around: list[Decoration], inside: CallFrame, call: ast.expr, path: Path) -> None:
        """Go through the outermost wrapper left, or else through the function itself."""
        if not around or not isinstance(call, ast.Call) or inside.caller is None:
            self.enter_plainly(inside, call, path)
            return
        made, wrapper = around[0]
        self.decorated.append((made, around[1:], inside))
        self.enter_plainly(self.contexts.enter(wrapper, call, inside.caller), call, path)
        self.decorated.pop()

    def enter_decorated(self, call: ast.Call, path: Path) -> bool:
        """Go through what a wrapper stands for, where it calls that, with what the wrapper was called with."""
        if not self.decorated or not calls_parameter(self.resolver, call, self.decorated[-1][0]):
            return False
        current = self.decorated.pop()
        self.enter_through(current[1], current[2], call, path)
        self.decorated.append(current)
        return True

    def note_entered(self, function: Function, call: ast.AST) -> None:
        """Remember which call was followed into which function."""
        self.entered.add(function)
        self.entered_by.setdefault(call, set()).add(function)
        self.entered_from.setdefault(function, set()).add(call)

    def enter_plainly(self, inside: CallFrame, call: ast.expr, path: Path) -> None:
        """Go through a function, unless it is being run already or lies too deep."""
        target = inside.function
        assert target is not None
        self.note_entered(target, call)
        if target in self.stack or len(self.stack) >= MAX_CALLS_DEEP or target not in self.eventful:
            return
        here = (*path, self.frame("call", call))
        if not self.replay(inside, here):
            self.follow(target, here, inside)

    def follow(self, target: Function, path: Path, inside: CallFrame) -> None:
        """Run what is called, and keep what it gives for the other worlds."""
        events, asked = self.trace.events, self.contexts.asked
        start, calls, questions, waiting = len(events), self.num_calls, len(asked), bool(self.yields)
        self.num_calls += 1
        self.body(target, path, inside)
        if waiting or self.yields or not self.trace.complete:
            return  # what a generator's yield runs is not its own
        names = frozenset(asked[questions:])
        world = {name: value for name, value in self.contexts.world.items() if name in names}
        done = events[start:], self.num_calls - calls, self.staying
        self.replays.keep(inside, FollowedCall(path, len(self.stack), names, world, *done))

    def replay(self, inside: CallFrame, path: Path) -> bool:
        """Take over what a call gave in another world, if it asks nothing that has another answer in this one."""
        world, events = self.contexts.world, self.trace.events
        known = self.replays.find(inside, path, len(self.stack), world) if world and not self.yields else None
        if known is None or len(events) + len(known.events) >= MAX_EVENTS:
            return False
        if self.num_calls + known.num_calls >= MAX_CALLS:
            return False
        events += known.events
        self.num_calls += known.num_calls
        self.contexts.asked += known.asked
        self.staying = known.staying
        return True

    def add(self, found: Iterable[Found], path: Path, context: CallFrame) -> None:
        """Note events, each with the object that it is about."""
        for kind, node, subject in found:
            key = self.contexts.key(LocatedExpression(subject, context)) if subject is not None else ""
            event = TraceEvent(kind, node, key, path, subject, context)
            if kind in ("zero_grad", "step", "schedule") and subject is not None:
                known = optimizer_making(
                    self.modules[0], self.contexts.origin(LocatedExpression(subject, context)).node, subject
                )
                event = replace(event, made=known[0], of_optimizer=known[1], waits=self.may_wait and known[2])
            self.trace.events.append(event)

    def count(self, node: ast.Assign | ast.AugAssign, path: Path, context: CallFrame) -> None:
        """Note what gives a counter its value."""
        if is_count(node):
            target = assignment_target(node)
            slot = self.contexts.slot(LocatedExpression(target, context))
            self.trace.events.append(TraceEvent("count", target, slot, path, target, context))


def optimizer_making(module: SourceModule, made: ast.expr, subject: ast.expr) -> tuple[bool, bool, bool]:
    """Tell whether an optimizer's or schedule's making is seen, whether it makes an optimizer, and whether one may lie under it."""
    is_made = (
        isinstance(made, ast.Call)
        and module.kinds.given_by_library(made) is None
        and module.classes.named(made.func) is None  # one of one's own may be around another
    )
    kind = module.kind(made)
    is_known = isinstance(made, ast.Call) and kind in ("optimizer", "scheduler")
    waits = not is_known and module.kind(subject) in ("optimizer", "scheduler")
    return is_made, kind == "optimizer", waits


def is_generator(function: Function, index: Index) -> bool:
    """Tell whether a function yields."""
    inside = (each for each in walk(function) if isinstance(each, ast.Yield))
    return any(index.scope_of.get(each) is function for each in inside)


def library_runs_by_method(module: SourceModule, functions: Iterable[ast.AST]) -> dict[ast.AST, LibraryRun]:
    """Return the loops that a library runs, by the methods by which it trains."""
    found: dict[ast.AST, LibraryRun] = {}
    for function in functions:
        owner = module.parents.get(function)
        if isinstance(owner, ast.ClassDef):
            run = library_run_of_method(module.resolver, module.kinds.of_class(owner), owner)
            if run is not None and run.trains is function:
                found[function] = run
    return found
