# SPDX-License-Identifier: Apache-2.0
"""A Python file as the checks see it: its nodes, calls by their full name, and where values come from."""

import ast
from collections.abc import Iterator
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING

from truestep.doctor.replacement import source_lines
from truestep.doctor.source import cached_questions
from truestep.doctor.source.cached_questions import ProgramFollower, WholeProgram
from truestep.doctor.source.container_unpacking import parse_and_split
from truestep.doctor.source.expression_kinds import ExpressionKinds
from truestep.doctor.source.names import Class, Index, Node, Scope, SourceBinder, dotted_name
from truestep.doctor.source.resolving import Resolver

if TYPE_CHECKING:
    from truestep.doctor.source.events import Trace

_NUMBER = attrgetter("number")  # of a node, in the order of the file


class SourceModule:
    """One parsed file: its nodes; what its names, values, classes and functions are; the program that it belongs to."""

    def __init__(
        self,
        text: str,
        path: str = "<text>",
        resolver: Resolver | None = None,
        follower: ProgramFollower | None = None,
    ) -> None:
        self.path = path
        self.text = text
        self.lines = source_lines(text)
        self.tree = parse_and_split(text, path)
        self.resolver = resolver or Resolver(Index(), lambda *_: None)
        self.names, self.classes = self.resolver.names, self.resolver.classes
        self.functions = self.resolver.functions
        self.index = self.resolver.index
        self._binder = SourceBinder(self.tree, self.index)
        self.functions.add_return_statements(self._binder.nodes.get(ast.Return, []))
        self.parents = self.index.parents
        self.remembered = self.resolver.remembered
        self.kinds = ExpressionKinds(self)
        self.program = WholeProgram(self, follower)
        self.shown: set[ast.stmt] = set()  # expressions that a notebook shows: the last of their cells
        self.was_followed = False  # whether anyone asked for the order of calls
        self._in_scopes: dict[type[ast.AST], dict[Scope, list[ast.AST]]] = {}

    def all(self, *types: type[Node]) -> list[Node]:
        """Return every node of these types, in the order of the file."""
        found = [node for kind in types for node in self._binder.nodes.get(kind, [])]
        if len(types) > 1:
            found.sort(key=_NUMBER)
        return found  # type: ignore[return-value]

    def inside(self, node: ast.AST, *types: type[Node]) -> list[Node]:
        """Return every node of these types from a node of the program on down, in their order."""
        binder = self.home(node)._binder
        if len(types) == 1:
            return binder.inside(node, types[0])
        found = [each for kind in types for each in binder.inside(node, kind)]
        return sorted(found, key=_NUMBER)

    def directly_in(self, scope: Scope, kind: type[Node]) -> list[Node]:
        """Return the nodes of a type in a function, not in one inside of it, or outside of all functions of the file."""
        if kind not in self._in_scopes:
            self._in_scopes[kind] = cached_questions.nodes_by_scope(
                self._binder.nodes.get(kind, []), self.index.scope_of
            )
        return self._in_scopes[kind].get(scope, [])  # type: ignore[return-value]

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield what encloses the node, innermost first."""
        return self.index.ancestors(node)

    def enclosing(self, node: ast.AST, *types: type[Node]) -> Node | None:
        """Return the innermost enclosing node of these types."""
        return self.index.enclosing(node, *types)

    def loop(self, node: ast.AST) -> ast.For | ast.While | None:
        """Return the innermost loop around a node, in whatever function that stands."""
        found = self.enclosing(node, ast.For, ast.While)
        return found if isinstance(found, (ast.For, ast.While)) else None

    @cached_property
    def _reads_by_name(self) -> dict[str, list[ast.Name | ast.Attribute]]:
        """Where names and attributes are read, by their last part, in the order of the file."""
        return cached_questions.reads_by_name(self.all(ast.Name), self.all(ast.Attribute))

    def reads(self, name: str) -> list[ast.expr]:
        """Return every place that reads a name or a chain of attributes (`self.opt`)."""
        return [
            node for node in self._reads_by_name.get(name.rpartition(".")[2], ()) if dotted_name(node) == name
        ]

    def read_under(self, name: str) -> list[ast.Name | ast.Attribute]:
        """Return every place that reads a name, or an attribute of that name of whatever object."""
        return self._reads_by_name.get(name, [])

    def scope(self, node: ast.AST) -> Scope:
        """Return the function or module in whose body the node stands."""
        return self.index.scope_of[node]

    def statement(self, node: ast.AST) -> ast.stmt:
        """Return the statement that the node is part of."""
        return self.resolver.statement(node)

    @cached_property
    def named_functions(self) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        """Every named function and method."""
        return self.all(ast.FunctionDef, ast.AsyncFunctionDef)

    @cached_property
    def named_classes(self) -> list[Class]:
        """Every class; of several of one name the last."""
        return list({each.name: each for each in self.all(ast.ClassDef)}.values())

    @cached_property
    def stores(self) -> list[ast.Assign | ast.AugAssign]:
        """Every assignment, and every `x += y`."""
        return [*self.all(ast.Assign), *self.all(ast.AugAssign)]

    @cached_property
    def _calls_by_name(self) -> dict[str, list[ast.Call]]:
        found: dict[str, list[ast.Call]] = {}
        for call in self.all(ast.Call):
            name = self.qualify(call.func)
            if name:
                found.setdefault(name, []).append(call)
        return found

    @cached_property
    def _method_calls_by_name(self) -> dict[str, list[ast.Call]]:
        return cached_questions.method_calls_by_name(self.all(ast.Call))

    def calls(self, *names: str) -> list[ast.Call]:
        """Return the calls of these full names (`torch.nn.functional.dropout`)."""
        return [call for name in names for call in self._calls_by_name.get(name, [])]

    def calls_matching(self, prefix: str) -> list[tuple[str, ast.Call]]:
        """Return (full name, call) for every call whose full name starts so."""
        return [
            (name, call)
            for name, calls in self._calls_by_name.items()
            if name.startswith(prefix)
            for call in calls
        ]

    def method_calls(self, *names: str) -> list[ast.Call]:
        """Return the calls `x.NAME(...)` whatever x is."""
        return [call for name in names for call in self._method_calls_by_name.get(name, [])]

    def home(self, node: ast.AST) -> "SourceModule":
        """Return the file of the program that a node stands in."""
        return self.program.home(node)

    @property
    def traces(self) -> "list[Trace]":
        """What happens in which order, from each place where this file can be entered."""
        self.was_followed = True
        return [each for each in self.program.followed if each.complete]

    def qualify(self, node: ast.expr) -> str | None:
        """Return the full name of what an expression refers to, if it was imported or is a builtin."""
        return self.names.qualify(node)

    def definitions(self, node: ast.expr) -> list[ast.expr | None]:
        """Return the expressions this one may stand for, one step back; None stands for "not known"."""
        return self.resolver.definitions(node)

    def kind(self, node: ast.expr) -> str | None:
        """Return what sort of thing an expression is: optimizer, module, loader, loss, ..."""
        return self.kinds.of(node)
