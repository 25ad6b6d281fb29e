# SPDX-License-Identifier: Apache-2.0
"""Which functions matter to what happens in a training: something of the protocol is in them, or in what they call."""

import ast
from collections.abc import Iterator

from truestep.doctor.source.decorators import calls_parameter, decorations, wrappers_of
from truestep.doctor.source.library_batch_loops import LibraryRun
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Function
from truestep.doctor.source.protocol_calls import Protocol
from truestep.doctor.source.resolving import Resolver


class EventfulFunctions:
    """The functions of a program in which something happens, and what each of its calls may run."""

    def __init__(
        self,
        modules: list[SourceModule],
        resolver: Resolver,
        protocol: Protocol,
        engines: dict[ast.Call, LibraryRun],
    ) -> None:
        self.modules = modules
        self.resolver = resolver
        self.protocol = protocol
        self.engines = engines
        self._targets: dict[ast.Call, list[Function]] = {}  # what each call may run
        self._by_name: dict[ast.Call, str] = {}  # of calls whose object nobody knows: any method of that name
        self._names: set[str] = set()  # of the methods that matter
        self.found = self._find_eventful()

    def may_be_run_by(self, call: ast.Call) -> bool:
        """Tell whether a call may run a function that matters."""
        return self._by_name.get(call, "") in self._names or not self.found.isdisjoint(self._targets[call])

    def _find_eventful(self) -> set[ast.AST]:
        """Return the functions in which something of the protocol happens, be it in what they call."""
        found: set[ast.AST] = set()
        callers: dict[ast.AST | str, set[ast.AST]] = {}
        scopes = self.resolver.index.scope_of
        for module in self.modules:
            for call in module.all(ast.Call):
                if self.protocol.call(call):
                    found.add(scopes[call])
                targets = self._targets[call] = list(self._possible_targets(call))
                named = [self._by_name[call]] if call in self._by_name else []
                for target in (*targets, *named):
                    callers.setdefault(target, set()).add(scopes[call])
            assignments: list[ast.Assign | ast.AugAssign] = [
                *module.all(ast.Assign),
                *module.all(ast.AugAssign),
            ]
            found |= {scopes[node] for node in assignments if self.protocol.assignment(node)}
        waiting = list(found)
        while waiting:
            called = waiting.pop()
            further = set(callers.get(called, ()))
            is_method = isinstance(self.resolver.index.parents.get(called), ast.ClassDef)
            if is_method and isinstance(called, (ast.FunctionDef, ast.AsyncFunctionDef)):
                name = called.name
                further.update(() if name in self._names else callers.get(name, ()))
                self._names.add(name)
            waiting += further - found
            found |= further
        return found

    def _possible_targets(self, call: ast.Call) -> Iterator[Function]:
        """Yield the functions of the program that a call may run."""
        resolver = self.resolver
        run, closure = resolver.functions.called(call), self.protocol.closure(call)
        for each in ([closure] if closure is not None else []) + resolver.functions.all_called(call):
            yield each
            yield from (wrapper for _, wrapper in decorations(resolver, each))
        yield from self._decorated_functions(call)
        if call in self.engines:
            yield from (each.function for each in self.engines[call].calls)
        if run is None and isinstance(call.func, ast.Attribute) and not self._is_library_function(call.func):
            self._by_name[call] = call.func.attr  # which of them runs may be clear only in the call's context

    def _decorated_functions(self, call: ast.Call) -> Iterator[Function]:
        """Yield what a wrapper stands for, where it calls what its decorator was given."""
        wrappers = wrappers_of(self.resolver)
        scope = self.resolver.index.scope_of[call]
        made = self.resolver.index.scope_of[scope] if scope in wrappers else None
        if isinstance(made, Function) and calls_parameter(self.resolver, call, made):
            yield from wrappers[scope]  # type: ignore[index]

    def _is_library_function(self, function: ast.Attribute) -> bool:
        """Tell `torch.load`: no class of the program has it, whatever the context."""
        return "." in (self.resolver.names.qualify(function) or "")
