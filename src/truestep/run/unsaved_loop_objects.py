# SPDX-License-Identifier: Apache-2.0
"""Generators and buffers of a loop's own that no checkpoint has: a run that goes on begins with those of its start."""

import ast
import random
from collections import deque
from collections.abc import Iterator
from inspect import isfunction, ismethod
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
import torch

from truestep.core.call_site import closure_variables
from truestep.core.source_lookup import enclosing_loops, function_node, unwrap_function
from truestep.core.user_frames import running_user_frames
from truestep.run.early_stopping import EarlyStopping
from truestep.run.loop_variable_analysis import is_name_reaching_update
from truestep.run.name_resolution import LoopPiece, SourceNameResolver, is_users_object, last_name
from truestep.run.state import RunState

_LOOKED_AT = (np.random.Generator, np.random.RandomState, random.Random, torch.Generator, EarlyStopping)
_SETS_OR_KEEPS = {
    *(
        "seed",
        "manual_seed",
        "set_state",
        "setstate",
        "get_state",
        "getstate",
        "bit_generator",
        "initial_seed",
    ),
    *("state_dict", "load_state_dict"),
}
_ADDS = {"append", "appendleft", "extend", "extendleft", "insert", "maxlen"}
_DEEPEST = 2  # a loop that calls a function that calls one
_LOOKS_UP = 8  # bodies after which nothing is looked for any more


class _HeldVariable(NamedTuple):
    value: Any
    mark: object
    seed: int | None


def _make_held_variable(value: Any) -> _HeldVariable:
    return _HeldVariable(
        value, _change_mark(value), value.initial_seed() if isinstance(value, torch.Generator) else None
    )


class UntrackedStateWatcher:
    """Looks at the first bodies of a run: what the code in them draws from, and reads of what it has put away itself."""

    def __init__(self, run: RunState) -> None:
        self._run = run
        self._bodies, self._next_look = 0, 1
        self._first: dict[str, _HeldVariable] = {}

    def body_begins(self) -> None:
        """A body of the leader's is about to begin, called for by the user's own loop."""
        self._bodies += 1
        if self._bodies == 1:
            found = dict(_generators_and_lists_in_loops())
            for text in [text for text, value in found.items() if isinstance(value, EarlyStopping)]:
                self._warn_unless_tracked(text, found.pop(text), _COUNT)
            self._first = {text: _make_held_variable(value) for text, value in found.items()}
        elif self._first and self._bodies > self._next_look:
            self._next_look *= 2
            self._check_changed_variables()
            if self._bodies > _LOOKS_UP:
                self._first = {}

    def _check_changed_variables(self) -> None:
        for text, held in [*self._first.items()]:
            if _change_mark(held.value) == held.mark:
                continue
            del self._first[text]
            if isinstance(held.value, torch.Generator) and held.value.initial_seed() != held.seed:
                continue  # it is seeded anew, by a function of the user's
            is_list = isinstance(held.value, (list, deque))
            if not is_list or _has_examples(held.value):
                self._warn_unless_tracked(text, held.value, _BUFFER if is_list else _GENERATOR)

    def _warn_unless_tracked(self, text: str, value: Any, said: str) -> None:
        if not self._is_value_tracked(value):
            short = text.rpartition(".")[2]
            self._run.screen.say_once(said.format(name=text, short=short), key=f"unkept {text}")

    def _is_value_tracked(self, value: Any) -> bool:
        kept = [*self._run.tracked.objects(), *self._run.user.values()]
        members = [part for each in kept if hasattr(each, "__dict__") for part in vars(each).values()]
        # a part of a part: the generator of an environment that a tracked agent holds
        members += [part for each in members if is_users_object(each) for part in vars(each).values()]
        return any(each is value for each in (*kept, *members))


def _change_mark(value: Any) -> object:
    """Return what is other once a generator was drawn from, or a list has grown or moved."""
    if isinstance(value, torch.Generator):
        return value.get_state().numpy().tobytes()
    if isinstance(value, np.random.Generator):
        return repr(value.bit_generator.state)
    if isinstance(value, np.random.RandomState):
        return repr(value.get_state(legacy=False))
    if isinstance(value, random.Random):
        return value.getstate()
    return len(value), id(value[0]) if value else None


def _has_examples(items: Any) -> bool:
    """Whether a list holds examples: tensors or arrays of more than one number, or tuples and the like of them; not numbers that
    are written down."""
    return any(_is_example(each) for each in (items[0], items[-1])) if items else False


def _is_example(item: Any) -> bool:
    if isinstance(item, (torch.Tensor, np.ndarray)):
        return item.ndim > 0
    parts = item.values() if isinstance(item, dict) else item if isinstance(item, (tuple, list)) else ()
    parts = vars(item).values() if is_users_object(item) and hasattr(item, "__dict__") else parts
    return any(isinstance(each, (torch.Tensor, np.ndarray)) and each.ndim > 0 for each in parts)


def _generators_and_lists_in_loops() -> Iterator[tuple[str, Any]]:
    """Yield the generators and lists that the bodies of the running loops name, by what is written."""
    pieces = [*pieces_of_running_loops()]
    if any(is_run_state(node, piece) for piece in pieces for node in piece.nodes):
        return  # what goes in and out there is not followed
    stored = {name for piece in pieces for each in piece.nodes if (name := name_assigned_or_deleted(each))}
    for piece in pieces:
        parents = {inner: each for each in piece.nodes for inner in ast.iter_child_nodes(each)}
        for node in piece.nodes:
            if not isinstance(node, ast.Name | ast.Attribute) or not isinstance(node.ctx, ast.Load):
                continue
            value = piece.names.value(node)
            is_list = isinstance(value, (list, deque)) and _is_read_beyond_counting(node, parents)
            if (not is_list and not isinstance(value, _LOOKED_AT)) or last_name(node) in stored:
                continue
            text = piece.names.text(node)
            if not _is_reset_in_pieces(text, pieces) and (
                not is_list or is_name_reaching_update(text, pieces)
            ):
                yield text, value


def is_run_state(node: ast.AST, piece: LoopPiece) -> bool:
    """Whether this is `run.state`, of a run."""
    if not isinstance(node, ast.Attribute) or node.attr != "state":
        return False
    return type(piece.names.value(node.value)).__name__ == "Run"


def _is_reset_in_pieces(text: str, pieces: list[LoopPiece]) -> bool:
    """Whether the loop seeds, keeps or empties what has this name, or what holds it."""
    for piece in pieces:
        for node in piece.nodes:
            if not isinstance(node, ast.Attribute):
                continue
            if node.attr in _SETS_OR_KEEPS and f"{text}.".startswith(f"{piece.names.text(node.value)}."):
                return True
            if node.attr == "clear" and piece.names.text(node.value) == text:
                return True
    return any(_is_emptying_by_pop(each, text, piece.names) for piece in pieces for each in piece.nodes)


def _is_emptying_by_pop(node: ast.AST, text: str, names: SourceNameResolver) -> bool:
    """Whether a call takes the last item off a list, or a loop takes off one after the other until none is left."""
    if isinstance(node, ast.While):
        return any(
            isinstance(each, ast.Name | ast.Attribute) and names.text(each) == text
            for each in ast.walk(node.test)
        )
    match node:
        case ast.Call(func=ast.Attribute(value=inner, attr="pop"), args=[]):
            return names.text(inner) == text
    return False


def name_assigned_or_deleted(node: ast.AST) -> str | None:
    """Return the name that a node writes or deletes: what it holds is made in the loop."""
    match node:
        case ast.Delete(targets=[ast.Subscript(value=held)]):
            return last_name(held)
        case ast.Name(ctx=ast.Store() | ast.Del()) | ast.Attribute(ctx=ast.Store() | ast.Del()):
            return last_name(node)
    return None


def _is_read_beyond_counting(node: ast.expr, parents: dict[ast.AST, ast.AST]) -> bool:
    """Whether more is done with a list than adding to it and counting."""
    above = parents.get(node)
    if isinstance(above, ast.Attribute):
        return above.attr not in _ADDS
    is_counted = isinstance(above, ast.Call) and isinstance(above.func, ast.Name) and above.func.id == "len"
    return not is_counted


def pieces_of_running_loops() -> Iterator[LoopPiece]:
    """Yield the bodies of the loops of the user's that run now, outermost of each function, and the functions that they call."""
    for frame in running_user_frames():
        if nodes := _loop_body_of_frame(frame):
            names = SourceNameResolver({**frame.f_globals, **frame.f_locals}, {})
            yield LoopPiece(nodes, names)
            yield from called_user_functions(nodes, names, 0)


def _loop_body_of_frame(frame: FrameType) -> list[ast.AST]:
    loops = enclosing_loops(frame)
    return [inner for each in loops[0].body for inner in ast.walk(each)] if loops else []


def called_user_functions(nodes: list[ast.AST], names: SourceNameResolver, depth: int) -> Iterator[LoopPiece]:
    """Yield the functions and methods of the user's that code names, called or given on."""
    seen: set[int] = set()
    for node in nodes:
        if not isinstance(node, ast.Name | ast.Attribute):
            continue
        value = names.value(node)
        function = unwrap_function(value) if callable(value) else None
        if not isfunction(function) or id(function) in seen or depth >= _DEEPEST:
            continue
        seen.add(id(function))
        if (written := function_node(function)) is None:
            continue
        variables = closure_variables(function)
        known: dict[str, Any] = {**variables.globals, **variables.nonlocals}
        texts: dict[str, str] = {}
        if ismethod(value) and written.args.args and isinstance(node, ast.Attribute):
            owner = written.args.args[0].arg
            known[owner], texts[owner] = value.__self__, names.text(node.value)
        inner = [*ast.walk(written)]
        piece = LoopPiece(inner, SourceNameResolver(known, texts), names.text(node))
        yield piece
        yield from called_user_functions(inner, piece.names, depth + 1)


_COUNT = (
    "{name}, which counts when to stop, is in no checkpoint: a run that goes on begins to count anew, and stops later than this "
    "one would have. Write run.track({short}={name}) before the loop"
)
_GENERATOR = (
    "{name}, a generator that the loop draws from, is in no checkpoint: a run that goes on begins with it as it is made, draws "
    "other numbers than this one would have drawn, and ends elsewhere. Write run.track({short}={name}) before the loop"
)
_BUFFER = (
    "{name}, which the loop adds to and reads, is in no checkpoint: a run that goes on begins with it as it is made, and trains on "
    "other examples than this one would have. Keep it by an object with state_dict() and load_state_dict(), named before the loop, "
    "run.track(buffer=buffer) (docs/howto/reinforcement-learning.md)"
)
