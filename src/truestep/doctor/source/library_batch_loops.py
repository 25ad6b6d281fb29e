# SPDX-License-Identifier: Apache-2.0
"""Loops over batches that stand nowhere in the program: a library runs them, and calls functions of the program in them."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from truestep.doctor.library.loops import ENGINES, LOOPS, LibraryEngine
from truestep.doctor.source.names import Function, dotted_name
from truestep.doctor.source.resolving import Resolver


@dataclass(frozen=True)
class CalledFunction:
    """One function that a library calls: for each batch or once around them, be it under a filter of the library's."""

    function: Function
    for_each_batch: bool = True
    every: ast.Call | None = None


@dataclass(frozen=True, eq=False)
class LibraryRun:
    """One such loop over the batches of an epoch."""

    trains: Function
    calls: tuple[CalledFunction, ...]
    numbered: tuple[ast.arg, ...]  # the parameters that are the number of the batch, from 0
    progress: Mapping[str, str]  # what else tells how far it is

    @property
    def restarts(self) -> bool:
        """Whether the numbers begin anew in each epoch."""
        return bool(self.numbered)


def library_run_of_method(resolver: Resolver, kind: str | None, owner: ast.ClassDef) -> LibraryRun | None:
    """Return the loop in which a library calls the methods of a class of this kind."""
    loop = LOOPS.get(kind or "")
    trains = resolver.classes.method(owner, loop.trains) if loop is not None else None
    if loop is None or trains is None:
        return None
    calls: list[CalledFunction] = []
    numbered: list[ast.arg] = []
    for name in (*loop.before, *loop.batch, *loop.after):
        function = resolver.classes.method(owner, name)
        if function is None:
            continue
        calls.append(CalledFunction(function, name in loop.batch))
        parameters = [*function.args.posonlyargs, *function.args.args][1:]
        if name in loop.batch and loop.batch[name] < len(parameters):
            numbered.append(parameters[loop.batch[name]])
    return LibraryRun(trains, tuple(calls), tuple(numbered), loop.progress)


def library_runs_of_engines(resolver: Resolver) -> dict[ast.Call, LibraryRun]:
    """Return the loops of the objects that a program makes of a library's classes, by the calls that make them."""
    found: dict[ast.Call, LibraryRun] = {}
    for name, engine in ENGINES.items():
        for call in resolver.index.calls.get(name.rpartition(".")[2], []):
            position, keyword = engine.trains
            given = [
                *call.args[position : position + 1],
                *(w.value for w in call.keywords if w.arg == keyword),
            ]
            trains = resolver.functions.named(given[0]) if given else None
            if trains is not None and resolver.names.qualify(call.func) == name:
                found[call] = LibraryRun(
                    trains,
                    tuple(_functions_called_by_engine(resolver, engine, call, trains)),
                    (),
                    engine.progress,
                )
    return found


def _functions_called_by_engine(
    resolver: Resolver, engine: LibraryEngine, made: ast.Call, trains: Function
) -> Iterator[CalledFunction]:
    """Yield what an engine calls, in the order of an epoch."""
    handlers = list(_handlers_of_engine(resolver, engine, made))
    for event in (engine.before, engine.batch_before, "", engine.batch_after, engine.after):
        each_batch = event not in (engine.before, engine.after)
        if not event:
            yield CalledFunction(trains)
        for of_event, function in handlers:
            filtered = of_event if isinstance(of_event, ast.Call) else None
            named = dotted_name(filtered.func if filtered is not None else of_event) or ""
            if event and named.rpartition(".")[2] == event:
                yield CalledFunction(function, each_batch, filtered)


def _handlers_of_engine(
    resolver: Resolver, engine: LibraryEngine, made: ast.Call
) -> Iterator[tuple[ast.expr, Function]]:
    """Yield the events that an engine is told to call a function at, with that function."""
    for method in engine.gives_event:
        for call in resolver.index.calls.get(method, []):
            if not isinstance(call.func, ast.Attribute) or not call.args:
                continue
            if made not in resolver.definitions(call.func.value):
                continue
            above = resolver.index.parents.get(call)
            decorated = above if isinstance(above, ast.FunctionDef) and call in above.decorator_list else None
            function = decorated or (resolver.functions.named(call.args[1]) if len(call.args) > 1 else None)
            if function is not None:
                yield call.args[0], function
