# SPDX-License-Identifier: Apache-2.0
"""The calls of the training protocol in the order in which they happen, followed into functions.

A trace starts where a file can be entered (its body, and functions that nothing in it calls) and
walks statements and arguments in the order of evaluation. A call of a function of the same file is
entered, with its parameters standing for the caller's arguments.
"""

import ast
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Function, dotted

if TYPE_CHECKING:
    from truestep.doctor.source.protocol import Protocol

MAX_CALLS_DEEP = 8
MAX_EVENTS = 5_000  # of one entry, and
MAX_CALLS = 20_000  # of a whole file: beyond these it is followed no further, and the checks abstain


@dataclass(frozen=True)
class Frame:
    """Something that encloses an event: a loop, a branch, a with block, a call."""

    kind: str  # loop, if, else, try, with, call
    node: ast.AST

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Frame) and self.kind == other.kind and self.node is other.node

    def __hash__(self) -> int:
        return hash((self.kind, id(self.node)))


Path = tuple[Frame, ...]
Targets = Callable[[ast.Call], list[Function]]
Environment = Mapping[str, tuple[ast.expr, "Environment"]]


@dataclass(frozen=True, eq=False)
class Event:
    """One call of the protocol."""

    kind: str
    node: ast.expr
    subject: str  # which optimizer, module, ...: the same text means the same object
    path: Path
    receiver: ast.expr | None = None  # the expression the subject was read from

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
    events: list[Event] = field(default_factory=list)
    complete: bool = True

    def of(self, *kinds: str) -> list[Event]:
        """Return the events of these kinds."""
        return [event for event in self.events if event.kind in kinds]

    def within(self, path: Path, *kinds: str) -> list[Event]:
        """Return the events of these kinds below a path."""
        return [event for event in self.events if event.kind in kinds and event.inside(path)]

    def training_loops(self) -> "list[TrainingLoop]":
        """Return each innermost loop that holds both a backward and the step of an optimizer after it."""
        found: dict[tuple[Path, str], TrainingLoop] = {}
        for step in self.of("step"):
            for length in range(len(step.path), 0, -1):
                path = step.path[:length]
                if path[-1].kind == "loop" and self.within(path, "backward"):
                    loop = found.setdefault((path, step.subject), TrainingLoop(self, path, step.subject))
                    loop.steps.append(step)
                    break
        return list(found.values())

    def between(self, first: Event, second: Event) -> list[Event]:
        """Return the events after one and before another."""
        start, end = self.events.index(first), self.events.index(second)
        return self.events[start + 1 : end]


@dataclass
class TrainingLoop:
    """A loop in which one optimizer is stepped after a backward."""

    trace: Trace
    path: Path
    optimizer: str
    steps: list[Event] = field(default_factory=list)

    def of(self, *kinds: str) -> list[Event]:
        """Return the events of these kinds in the loop."""
        return self.trace.within(self.path, *kinds)

    @property
    def node(self) -> ast.AST:
        """The loop statement."""
        return self.path[-1].node

    def condition(self) -> ast.expr | None:
        """Return the test under which the first step happens, if it does not at every iteration."""
        branches = [frame.node for frame in self.steps[0].branches(self.path) if frame.kind == "if"]
        return branches[-1].test if branches and isinstance(branches[-1], ast.If) else None

    def window(self) -> ast.expr | None:
        """Return k of `if (i + 1) % k == 0:` around the step; None where several optimizers take turns."""
        if len({event.subject for event in self.of("step")}) != 1:
            return None
        test = self.condition()
        remainders = [
            node for node in (ast.walk(test) if test is not None else ()) if isinstance(node, ast.BinOp)
        ]
        return next((node.right for node in remainders if isinstance(node.op, ast.Mod)), None)

    def outer_loops(self) -> list[Path]:
        """Return the paths of the loops around this one, innermost first."""
        lengths = [index + 1 for index, frame in enumerate(self.path[:-1]) if frame.kind == "loop"]
        return [self.path[:length] for length in reversed(lengths)]


def exclusive(first: Event, second: Event) -> bool:
    """Tell whether two events stand in different arms of one `if`."""
    arms = {frame.node: frame.kind for frame in first.path if frame.kind in ("if", "else")}
    return any(
        frame.kind in ("if", "else") and arms.get(frame.node, frame.kind) != frame.kind
        for frame in second.path
    )


def trace_module(module: SourceModule) -> list[Trace]:
    """Return the traces of a file: its body first, then each function that nothing in it enters.

    Where calls call one another so often that a trace is cut, it says `complete=False`.
    """
    tracer = _Tracer(module)
    traces = [tracer.run(module.tree, module.tree.body)]
    for function in [*module.functions]:
        if function not in tracer.entered:  # asked anew each time: running one enters others
            traces += [tracer.run(function, function.body)]
    return [trace for trace in traces if trace.events]


def _eventful(module: SourceModule, protocol: "Protocol", targets: Targets) -> set[ast.AST]:
    """Return the functions in which something of the protocol happens, be it in what they call."""
    found: set[ast.AST] = set()
    callers: dict[ast.AST, set[ast.AST]] = {}
    for call in module.all(ast.Call):
        if protocol.call(call):
            found.add(module.scope(call))
        for target in targets(call):
            callers.setdefault(target, set()).add(module.scope(call))
    assignments: list[ast.Assign | ast.AugAssign] = [*module.all(ast.Assign), *module.all(ast.AugAssign)]
    for node in assignments:
        if any(protocol.assignment(node)):
            found.add(module.scope(node))
    waiting = list(found)
    while waiting:
        for caller in callers.get(waiting.pop(), set()) - found:
            found.add(caller)
            waiting.append(caller)
    return found


class _Tracer:
    """Walks one entry after the other, and remembers which functions were entered on the way."""

    def __init__(self, module: SourceModule) -> None:
        from truestep.doctor.source.protocol import Protocol

        self.module = module
        self.protocol = Protocol(module)
        self.eventful = _eventful(module, self.protocol, self.targets)
        self.num_calls = 0
        self.entered: set[Function] = set()
        self.stack: list[Function] = []
        self.trace = Trace(module.tree)

    def run(self, root: ast.AST, body: list[ast.stmt]) -> Trace:
        self.trace = Trace(root)
        self.stack = [root] if isinstance(root, Function) else []
        self.statements(body, (), {})
        return self.trace

    def statements(self, body: list[ast.stmt], path: Path, env: Environment) -> None:
        for statement in body:
            if len(self.trace.events) >= MAX_EVENTS or self.num_calls >= MAX_CALLS:
                self.trace.complete = False
                return
            self.statement(statement, path, env)

    def statement(self, node: ast.stmt, path: Path, env: Environment) -> None:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                pass  # a function's body happens where it is called
            case ast.ClassDef():
                self.statements(node.body, path, env)
            case ast.For() | ast.AsyncFor():
                self.expressions(node.iter, path, env)
                self.statements(node.body, (*path, Frame("loop", node)), env)
                self.statements(node.orelse, path, env)
            case ast.While():
                inner = (*path, Frame("loop", node))
                self.expressions(node.test, inner, env)
                self.statements(node.body, inner, env)
            case ast.If():
                self.expressions(node.test, path, env)
                self.statements(node.body, (*path, Frame("if", node)), env)
                self.statements(node.orelse, (*path, Frame("else", node)), env)
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    self.expressions(item.context_expr, path, env)
                self.statements(node.body, (*path, Frame("with", node)), env)
            case ast.Try():
                self.attempt(node, path, env)
            case _:
                self.expressions(node, path, env)

    def attempt(self, node: ast.Try, path: Path, env: Environment) -> None:
        self.statements(node.body, path, env)
        for block in (*(handler.body for handler in node.handlers), node.orelse):
            self.statements(block, (*path, Frame("if", node)), env)
        self.statements(node.finalbody, path, env)

    def expressions(self, node: ast.AST, path: Path, env: Environment) -> None:
        """Visit what an expression evaluates, arguments before the call they are for."""
        if isinstance(node, Function):
            return
        if isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
            path = (*path, Frame("loop", node))
        if isinstance(node, ast.IfExp):
            path = (*path, Frame("if", node))
        for child in self.module.children[node]:
            if not isinstance(child, ast.Name | ast.Constant):
                self.expressions(child, path, env)
        if isinstance(node, ast.Call):
            self.call(node, path, env)
        elif isinstance(node, ast.Assign | ast.AugAssign):
            self.add(self.protocol.assignment(node), path, env)

    def targets(self, call: ast.Call) -> list[Function]:
        """Return the functions of this file that a call may run."""
        found = (self.protocol.closure(call), self.module.target(call), self.forward_of(call))
        return [each for each in found if each is not None]

    def call(self, call: ast.Call, path: Path, env: Environment) -> None:
        closure = self.protocol.closure(call)
        if closure is not None:
            self.enter(closure, call, path, {})
        target = self.module.target(call) or self.forward_of(call)
        if self.protocol.is_protocol(call):
            self.add(self.protocol.call(call), path, env)
        elif target is not None:
            if self.protocol.is_forward(call):
                self.add([("forward", call, call.func)], path, env)
            self.enter(target, call, path, env)
        else:
            self.add(self.protocol.call(call), path, env)

    def forward_of(self, call: ast.Call) -> Function | None:
        owner = self.module.class_of(call.func) if not isinstance(call.func, ast.Lambda) else None
        return self.module.method(owner, "forward") if owner is not None else self.module.constructor(call)

    def enter(self, target: Function, call: ast.Call, path: Path, env: Environment) -> None:
        self.entered.add(target)
        if target in self.stack or len(self.stack) >= MAX_CALLS_DEEP or target not in self.eventful:
            return
        self.num_calls += 1
        inner: dict[str, tuple[ast.expr, Environment]] = {}
        for argument in [*target.args.posonlyargs, *target.args.args, *target.args.kwonlyargs]:
            given = self.module.argument_for(target, call, argument.arg)
            if given is not None:
                inner[argument.arg] = (given, env)
        self.stack.append(target)
        inside = (*path, Frame("call", call))
        if isinstance(target, ast.Lambda):
            self.expressions(target.body, inside, inner)
        else:
            self.statements(target.body, inside, inner)
        self.stack.pop()

    def add(
        self,
        found: Iterable[tuple[str, ast.expr, ast.expr | None]],
        path: Path,
        env: Environment,
    ) -> None:
        for kind, node, subject in found:
            key = self.key(subject, env) if subject is not None else ""
            self.trace.events.append(Event(kind, node, key, path, subject))

    def key(self, node: ast.expr, env: Environment, depth: int = 0) -> str:
        """Return a text that is the same wherever the same object is meant."""
        if depth > MAX_CALLS_DEEP:
            return "?"
        if isinstance(node, ast.Name):
            if node.id in env and self._is_parameter(node):
                given, outer = env[node.id]
                return self.key(given, outer, depth + 1)
            values = self.module.definitions(node)
            if len(values) == 1 and isinstance(values[0], ast.Name | ast.Attribute):
                return self.key(values[0], env, depth + 1)
            bindings = self.module.bindings(node)
            return f"{node.id}@{bindings[0].line}" if bindings else node.id
        if isinstance(node, ast.Attribute):
            if isinstance(node.value, ast.Name) and node.value.id == "self" and "self" not in env:
                owner = self.module.enclosing(node, ast.ClassDef)
                return f"{owner.name if owner else ''}.{node.attr}"
            owner = self.module.class_of(node.value)
            prefix = owner.name if owner else self.key(node.value, env, depth + 1)
            return f"{prefix}.{node.attr}"
        if isinstance(node, ast.Call):
            inner = self.module.unwrapped(node)
            return self.key(inner, env, depth + 1) if inner is not None else "?"
        return ast.unparse(node) if dotted(node) else "?"

    def _is_parameter(self, name: ast.Name) -> bool:
        return any(binding.how == "parameter" for binding in self.module.bindings(name))
