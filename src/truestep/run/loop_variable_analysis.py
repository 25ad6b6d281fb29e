# SPDX-License-Identifier: Apache-2.0
"""What a loop carries from body to body in plain variables, and whether an update is made of it: by the source of its body.

Each piece (the body, and the functions that it calls) gives edges: what is written is made of what is read. A test makes what
stands under it. What of the carried comes along these edges to an update is trained on.
"""

import ast
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import NamedTuple

from truestep.core.source_lookup import unparse_cached
from truestep.engine.learner import Learner
from truestep.run.name_resolution import MISSING, LoopPiece, is_users_object

_Place = ast.Name | ast.Attribute | ast.Subscript
_HOLDS = "{} holds"  # a dict one of whose members was written: what reads the whole of it reads that, too


class _DataFlowEdge(NamedTuple):
    made: set[str]
    of: set[str]


class DataFlowPiece:
    """One piece of source, with its variables under names that no other piece has where they are its own."""

    def __init__(self, piece: LoopPiece) -> None:
        self.piece, self.called = piece, piece.called
        self._read: dict[ast.AST, set[str]] = {}
        self._own = local_variables_of_piece(piece) if piece.called else set()
        self._conditional = {id(inner) for each in piece.nodes for inner in _conditional_nodes(each)}
        self.nested = {
            each.name: LoopPiece([*ast.walk(each)], piece.names, each.name)
            for each in piece.nodes[piece.called != "" :]
            if isinstance(each, ast.FunctionDef)
        }
        self._within = {id(inner) for each in self.nested.values() for inner in each.nodes}
        self.nodes = [each for each in piece.nodes if id(each) not in self._within]
        self.written = [*self._all_assigned_places()]

    def text(self, node: ast.expr) -> str:
        """Return what is written, by the names outside; a variable of its own has its function before it."""
        text = self.piece.names.text(node)
        first = text.partition(".")[0].partition("[")[0]
        return f"{self.called}>{text}" if first in self._own else text

    def reads(self, *nodes: ast.AST) -> set[str]:
        """Return all that is read in code: what `a.b` says reads `a`, too."""
        return set().union(*map(self._places_read_in_node, nodes))

    def _places_read_in_node(self, top: ast.AST) -> set[str]:
        if top not in self._read:
            places = [each for each in ast.walk(top) if isinstance(each, _Place)]
            members = {
                id(each.value)
                for each in places
                if isinstance(each, ast.Subscript) and isinstance(each.slice, ast.Constant)
            }
            loaded = [each for each in places if isinstance(each.ctx, ast.Load)]
            found = {self.text(each) for each in loaded}
            found |= {_HOLDS.format(self.text(each)) for each in loaded if id(each) not in members}
            self._read[top] = found
        return self._read[top]

    def _all_assigned_places(self) -> Iterator[tuple[_Place, ast.expr | None]]:
        for node in self.nodes:
            for target, value in _assigned_targets_and_values(node):
                for each in _places_in_target(target):
                    match each:
                        case ast.Subscript(value=ast.Name() | ast.Attribute() as held, slice=where) if (
                            not isinstance(where, ast.Constant)
                        ):
                            yield (
                                held,
                                ast.Tuple(
                                    [_target_as_load_expression(held), *([value] if value else [])],
                                    ast.Load(),
                                ),
                            )
                        case _:
                            yield each, value

    def makes(self, target: ast.expr) -> set[str]:
        """Return what is written where this is the target."""
        found: set[str] = set()
        for each in _places_in_target(target):
            found.add(self.text(each))
            if isinstance(each, ast.Subscript):
                found.add(_HOLDS.format(self.text(each.value)))
        return found

    def is_read_before_set(self, text: str, readers: set[str], resetters: set[str]) -> bool:
        """Whether it reads what is so written before a line sets it in each body."""
        set_at = [*self._lines_setting_name_each_body(text, readers, resetters)]
        return any(
            not any(line <= node.lineno for line in set_at)
            for node in self.nodes
            if isinstance(node, _Place) and self._is_read_of_name(node, text, readers)
        )

    def resets(self, text: str, readers: set[str], resetters: set[str]) -> bool:
        """Whether it sets it whenever it runs, without reading it."""
        return any(self._lines_setting_name_each_body(text, readers, resetters))

    def _is_read_of_name(self, node: _Place, text: str, readers: set[str]) -> bool:
        written = self.text(node)
        return (
            written in readers
            if written != text
            else isinstance(node.ctx, ast.Load) or self._is_augmented_assignment(node)
        )

    def _is_augmented_assignment(self, node: _Place) -> bool:
        return any(isinstance(each, ast.AugAssign) and each.target is node for each in self.nodes)

    def _lines_setting_name_each_body(
        self, text: str, readers: set[str], resetters: set[str]
    ) -> Iterator[int]:
        for target, value in self.written:
            is_set = id(target) not in self._conditional and self.text(target) == text
            if is_set and (value is None or not ({text} | readers) & self.reads(value)):
                yield target.lineno
        for node in self.nodes:
            if isinstance(node, ast.Call) and id(node) not in self._conditional:
                called = self.text(node.func) if isinstance(node.func, _Place) else ""
                if called in resetters and called not in readers:
                    yield node.lineno

    def edges(self) -> Iterator[_DataFlowEdge]:
        """Yield what is made of what."""
        if self.called:
            yield _DataFlowEdge({self.called}, self.reads(*self.nodes))
        for node in self.nodes:
            match node:
                case ast.If(test=test) | ast.While(test=test):
                    within = {id(each) for each in ast.walk(node)}
                    under = [each for each in self.written if id(each[0]) in within]
                    yield _DataFlowEdge(
                        set().union(*(self.makes(each) for each, _ in under)), self.reads(test)
                    )
                case ast.comprehension(target=target, iter=value):
                    yield _DataFlowEdge(self.makes(target), self.reads(value))
                case ast.Expr(value=ast.Call(func=ast.Attribute(value=held), args=given)) if self._is_data(
                    held
                ):
                    yield _DataFlowEdge({self.text(held)}, self.reads(*given))
        for written, made in self.written:
            if made is not None:
                yield _DataFlowEdge(self.makes(written), self.reads(made))

    def _is_data(self, node: ast.expr) -> bool:
        """Whether an object takes what its methods are given: one that holds a learner or a run is no data."""
        value = self.piece.names.value(node)
        if value is MISSING:  # a list that the body makes, asked for before the first body ran
            made = [each for target, each in self.written if self.text(target) == self.text(node)]
            return any(isinstance(each, ast.List | ast.Dict | ast.Set) for each in made)
        if isinstance(value, Learner | ModuleType):
            return False
        held = [value, *getattr(value, "__dict__", {}).values()]
        is_own = isinstance(value, list | dict | set) or is_users_object(value)
        return is_own and not any(isinstance(each, Learner) or type(each).__name__ == "Run" for each in held)

    def names_reaching_update(self, updating: set[str]) -> set[str]:
        """Return what an update here is made of, what decides whether it is made, and what is put into groups of an optimizer."""
        found: set[str] = set()
        for node in self.nodes:
            if isinstance(node, ast.Call) and self._is_update_call(node, updating):
                found |= self.reads(*node.args, *(each.value for each in node.keywords))
            elif isinstance(node, ast.If | ast.While) and any(
                isinstance(each, ast.Call) and self._is_update_call(each, updating) for each in ast.walk(node)
            ):
                found |= self.reads(node.test)
        return found | self.reads(*self._values_put_into_param_groups())

    def _values_put_into_param_groups(self) -> Iterator[ast.expr]:
        """Yield what `group["lr"] = rate` puts into the groups of an optimizer, which keep it."""
        groups = {
            self.text(part)
            for each in self.nodes
            if isinstance(each, ast.For) and "param_groups" in unparse_cached(each.iter)
            for part in _places_in_target(each.target)
        }
        for target, value in self.written:
            if isinstance(target, ast.Subscript) and value is not None:
                holder = target.value
                if "param_groups" in unparse_cached(holder) or (
                    isinstance(holder, _Place) and self.text(holder) in groups
                ):
                    yield value

    def _is_update_call(self, call: ast.Call, updating: set[str]) -> bool:
        if isinstance(call.func, _Place) and self.text(call.func) in updating:
            return True
        if not isinstance(call.func, ast.Attribute) or call.func.attr != "update":
            return False
        value = self.piece.names.value(call.func.value)
        is_truestep = isinstance(value, ModuleType) and value.__name__ == "truestep"
        return isinstance(value, Learner) or is_truestep or (value is MISSING and len(call.args) > 1)

    @property
    def updates(self) -> bool:
        """Whether it makes an update itself."""
        return any(isinstance(each, ast.Call) and self._is_update_call(each, set()) for each in self.nodes)


def values_carried_into_training(pieces: list[LoopPiece]) -> Iterator[tuple[_Place, LoopPiece, str]]:
    """Yield what the body, which is the first of the pieces, reads as the body before has left it, and trains on."""
    every = [*_pieces_with_nested(map(DataFlowPiece, pieces))]
    edges, sinks = _edges_and_update_sinks(every)
    seen: set[str] = set()
    for each in every:
        for target, _ in each.written:
            text = each.text(target)
            if text not in seen and ">" not in text:
                seen.add(text)
                if _is_carried_between_bodies(text, every) and _is_sink_reachable({text}, edges, sinks):
                    yield target, each.piece, text


def is_name_reaching_update(text: str, pieces: list[LoopPiece]) -> bool:
    """Whether the batch of an update, or its loss, is made of the list that is so written: one that is only shown is not."""
    every = [*_pieces_with_nested(map(DataFlowPiece, pieces))]
    return _is_sink_reachable({text, text.rpartition(".")[0]} - {""}, *_edges_and_update_sinks(every))


def _edges_and_update_sinks(every: list[DataFlowPiece]) -> tuple[list[_DataFlowEdge], set[str]]:
    updating = {each.called for each in every if each.called and each.updates}
    edges = [edge for each in every for edge in each.edges()]
    return edges, set().union(*(each.names_reaching_update(updating) for each in every))


def _pieces_with_nested(pieces: Iterable[DataFlowPiece]) -> Iterator[DataFlowPiece]:
    for each in pieces:
        yield each
        yield from _pieces_with_nested(map(DataFlowPiece, each.nested.values()))


def _is_carried_between_bodies(text: str, every: list[DataFlowPiece]) -> bool:
    readers: set[str] = set()
    resetters: set[str] = set()
    for each in every[:0:-1]:  # what a function calls stands behind it
        if each.called and each.is_read_before_set(text, readers, resetters):
            readers.add(each.called)
        if each.called and each.resets(text, readers, resetters):
            resetters.add(each.called)
    return every[0].is_read_before_set(text, readers, resetters)


def _is_sink_reachable(reached: set[str], edges: list[_DataFlowEdge], sinks: set[str]) -> bool:
    grows = True
    while grows and not reached & sinks:
        made = set().union(*(each.made for each in edges if each.of & reached))
        grows = not made <= reached
        reached = reached | made
    return bool(reached & sinks)


def local_variables_of_piece(piece: LoopPiece) -> set[str]:
    """Return the names that a function makes anew at each call."""
    top = piece.nodes[0]
    given = top.args if isinstance(top, ast.FunctionDef | ast.Lambda) else None
    names = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg] if given else []
    stored = {
        each.id for each in piece.nodes if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load)
    }
    kept = {
        name for each in piece.nodes if isinstance(each, ast.Global | ast.Nonlocal) for name in each.names
    }
    found = ({each.arg for each in names if each} | stored) - kept
    return {name for name in found if not piece.names.has_name_outside(name)}


def _conditional_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what runs only where a test says so."""
    if isinstance(node, ast.If):
        for each in (*node.body, *node.orelse):
            yield from ast.walk(each)


def _assigned_targets_and_values(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    match node:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                yield target, value
        case (
            ast.AnnAssign(target=target, value=ast.expr() as value)
            | ast.NamedExpr(target=target, value=value)
        ):
            yield target, value
        case ast.AugAssign(target=target, value=value):
            yield target, ast.Tuple([_target_as_load_expression(target), value], ast.Load())
        case ast.For(target=target, iter=value):
            yield target, value
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=target, attr=name), args=given)) if (
            name.endswith("_")
        ):
            yield (
                target,
                ast.Tuple([_target_as_load_expression(target), *given], ast.Load()),
            )  # `hidden.copy_(...)`
        case ast.withitem(context_expr=value, optional_vars=ast.expr() as target):
            yield target, value


def _target_as_load_expression(target: ast.expr) -> ast.expr:
    return ast.parse(unparse_cached(target), mode="eval").body


def _places_in_target(target: ast.expr) -> Iterator[_Place]:
    match target:
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            for each in parts:
                yield from _places_in_target(each)
        case ast.Starred(value=inner):
            yield from _places_in_target(inner)
        case ast.Name() | ast.Attribute() | ast.Subscript():
            yield target
