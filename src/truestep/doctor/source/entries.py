# SPDX-License-Identifier: Apache-2.0
"""The places where a program is entered, each followed when what happens from there is asked for.

Which places these are rests on what the others reach: a function that something enters is no place of its own. Processes
that share a program each follow some of them, and tell one another what these reach.
"""

import ast
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any

from truestep.doctor.source.events import Trace
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.resolving import Resolver
from truestep.doctor.source.tracing import ProgramTracer, Root

Address = tuple[int, type[ast.AST], int]  # which file, what, and its number there: the same in every process
ToldReach = tuple[Address, list[Address], list[Address]]  # a place, and what is reached from it


@dataclass(frozen=True)
class EntryReach:
    """What is reached from one place."""

    functions: frozenset[ast.AST]  # of those in which something happens
    training: frozenset[ast.AST]  # the loops in which an optimizer steps


class ProgramEntries:
    """The traces of a program, by the places where they begin."""

    def __init__(self, modules: list[SourceModule], resolver: Resolver) -> None:
        self._modules = {module.tree: module for module in modules}
        self.tracer = ProgramTracer(modules, resolver)
        self._resolver = resolver
        self._traces: dict[Root, list[Trace]] = {}
        self._reached: dict[Root, EntryReach] = {}

    @cached_property
    def _unconditional_roots(self) -> list[Root]:
        """What is entered whatever the rest of the program does: the files, and what nothing calls."""
        called = {each.function for run in self.tracer.engines.values() for each in run.calls}
        files = [tree for tree in self._modules if tree in self.tracer.eventful]
        own = [
            each
            for each in self._eventful_functions
            if each not in called and not self._resolver.functions.callers(each)
        ]
        return [*files, *own]

    @cached_property
    def _eventful_functions(self) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        every = (each for module in self._modules.values() for each in module.named_functions)
        return [each for each in every if each in self.tracer.eventful]

    @cached_property
    def roots(self) -> dict[ast.Module, list[Root]]:
        """The places by their files: the body, functions that nothing enters, and the first of each circle."""
        found: dict[ast.Module, list[Root]] = {tree: [] for tree in self._modules}
        entered: set[ast.AST] = set()
        for root in [*self._unconditional_roots, *self._eventful_functions]:
            if root not in entered:
                found[self._resolver.index.tree_of(root)].append(root)
                entered |= {root, *self.reached(root).functions}
        return found

    def follow(self, root: Root) -> list[Trace]:
        """Return what happens from one place."""
        if root not in self._traces:
            self._traces[root] = found = self.tracer.trace_each_world(root)
            loops = [loop for trace in found if trace.complete for loop in trace.learning_loops()]
            training = {frame.node for loop in loops for frame in loop.path if frame.kind == "loop"}
            functions = frozenset(self.tracer.entered & self.tracer.eventful)
            self._reached[root] = EntryReach(functions, frozenset(training))
        return self._traces[root]

    def reached(self, root: Root) -> EntryReach:
        """Return what one place reaches."""
        if root not in self._reached:
            self.follow(root)
        return self._reached[root]

    def prepare(self) -> None:
        """Find what is needed wherever the program is followed from."""
        assert self._unconditional_roots is not None

    def told_of(self, tree: ast.Module) -> list[ToldReach]:
        """Return what is reached from the places in a file that are entered whatever the rest does, for other processes."""
        told: list[ToldReach] = []
        for root in self._unconditional_roots:
            if self._resolver.index.tree_of(root) is tree:
                reach = self.reached(root)
                functions = [self._node_address(each) for each in reach.functions]
                told.append(
                    (
                        self._node_address(root),
                        functions,
                        [self._node_address(each) for each in reach.training],
                    )
                )
        return told

    def take(self, told: list[ToldReach]) -> None:
        """Believe what other processes found: a place is followed here only if its traces are asked for."""
        modules = list(self._modules.values())

        def node_at(address: Address) -> Any:
            place, kind, number = address
            found = modules[place].all(kind)
            return found[bisect_left(found, number, key=attrgetter("number"))]

        for root, functions, training in told:
            reach = EntryReach(frozenset(map(node_at, functions)), frozenset(map(node_at, training)))
            self._reached.setdefault(node_at(root), reach)

    @cached_property
    def _file_numbers(self) -> dict[ast.Module, int]:
        return {tree: place for place, tree in enumerate(self._modules)}

    def _node_address(self, node: Any) -> Address:
        return self._file_numbers[self._resolver.index.tree_of(node)], type(node), node.number

    def traces_of(self, tree: ast.Module) -> list[Trace]:
        """Return the traces that start in a file."""
        return [trace for root in self.roots[tree] for trace in self.follow(root)]

    def every_trace(self) -> list[Trace]:
        """Return all traces, file by file."""
        return [trace for tree in self._modules for trace in self.traces_of(tree)]

    def through(self, node: ast.AST) -> Iterator[Trace]:
        """Yield the traces that come by a node, file by file."""
        scope = self._resolver.index.scope_of.get(node)
        for root in (root for roots in self.roots.values() for root in roots):
            if root is scope or scope in self.reached(root).functions:
                yield from self.follow(root)

    @cached_property
    def training(self) -> set[ast.AST]:
        """The loops of the program in which an optimizer steps."""
        roots = (root for roots in self.roots.values() for root in roots)
        return set().union(*(self.reached(root).training for root in roots))

    def followed(self) -> list[Trace]:
        """Return the traces of what was followed here."""
        return [trace for traces in self._traces.values() for trace in traces]
