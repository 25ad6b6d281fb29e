# SPDX-License-Identifier: Apache-2.0
"""Plain variables that a loop carries from body to body: no checkpoint has them, and a run that goes on begins with them anew.

The best value so far, and the count of bodies without a better one, are named in the first body. What is only added to, and read
behind the loop, is named where a run goes on: the loss of it is shown there, and changes no training.
"""

import ast
import re
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import numpy as np
import torch

from truestep.core.source_lookup import Loop, source_tree, unparse_cached
from truestep.run.loop_variable_analysis import values_carried_into_training
from truestep.run.name_resolution import LoopPiece, SourceNameResolver
from truestep.run.running_loops import running_loops
from truestep.run.state import RunState
from truestep.run.unsaved_loop_objects import called_user_functions, is_run_state, pieces_of_running_loops

_ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_PLACES = re.compile(r"\.(step|epoch)\b(?!\()|\btime\b|\bperf_counter\b|\bmonotonic\b")
"""What only grows: the newest of it is no best one, and begins anew by right."""
_FIRST = 4  # of the parts of a value, as of their parts, that are looked at
_Written = ast.Name | ast.Attribute | ast.Subscript


class UntrackedVariableWatcher:
    """Looks at the loops around the first body."""

    def __init__(self, run: RunState) -> None:
        self._run, self._has_looked = run, False

    def body_begins(self) -> None:
        """A body of the leader's is about to begin, called for by the user's own loop."""
        if self._has_looked:
            return
        self._has_looked = True
        pieces = [*pieces_of_running_loops()]
        if any(is_run_state(node, piece) for piece in pieces for node in piece.nodes):
            return  # what goes in and out there is not followed
        found = dict.fromkeys(text for piece in pieces for text in self._best_and_count_variables(piece))
        self._warn_of_variables(_BEST, [*found])
        self._warn_of_variables(
            _CARRIED,
            [text for text in dict.fromkeys(self._carried_training_variables()) if text not in found],
        )
        if self._run.cursor.step:
            added = [name for name in _accumulators_read_after_loop(self._run) if name not in found]
            if added:
                self._say_text_once(
                    _ADDED.format(names=_join_with_and(added), hold="holds" if len(added) == 1 else "hold")
                )

    def _carried_training_variables(self) -> Iterator[str]:
        """Yield what the loops around carry from body to body in variables, and what an update is made of."""
        for frame, loops in running_loops(self._run):
            names = SourceNameResolver({**frame.f_globals, **frame.f_locals}, {})
            for loop in loops:
                nodes = [inner for each in loop.body for inner in ast.walk(each)]
                for target, piece, text in values_carried_into_training(
                    [LoopPiece(nodes, names), *called_user_functions(nodes, names, 0)]
                ):
                    value = piece.names.value(target)
                    if not (self._is_untracked_variable(target, piece) and _is_savable_data(value)):
                        continue
                    if _has_same_meaning_in_function(value, text, names):
                        yield text
                    elif isinstance(target, ast.Name) and _is_declared_global(target.id, piece.nodes):
                        yield f"{text} of {piece.called}"

    def _warn_of_variables(self, said: str, names: list[str]) -> None:
        if names:
            first = re.sub(r"\W+", "_", names[0].rpartition(".")[2]).strip("_")
            begin = "is" if len(names) == 1 else "are"
            self._say_text_once(said.format(names=_join_with_and(names), begin=begin, name=first))

    def _say_text_once(self, text: str) -> None:
        self._run.screen.say_once(text, key=text)

    def _best_and_count_variables(self, piece: LoopPiece) -> Iterator[str]:
        code = _LoopBodyAssignments(piece)
        for node in piece.nodes:
            carried = _best_value_variable(node, code) or _patience_counter_variable(node, code)
            if (
                carried is not None
                and code.is_carried_between_bodies(carried)
                and self._is_untracked_with_value(carried, piece)
            ):
                yield piece.names.text(carried)

    def _is_untracked_with_value(self, node: _Written, piece: LoopPiece) -> bool:
        """Whether it has a value before the first body, which nothing that is tracked keeps."""
        value: Any = piece.names.value(node)
        return self._is_untracked_variable(node, piece) and (
            value is None or isinstance(value, int | float | torch.Tensor)
        )

    def _is_untracked_variable(self, node: _Written, piece: LoopPiece) -> bool:
        """Whether nothing that is tracked has it, and no function makes it anew at each call."""
        if not isinstance(node, ast.Name) and any(
            piece.names.value(node.value) is each for each in self._run.tracked.objects()
        ):
            return False
        return not (
            isinstance(node, ast.Name) and piece.called and not _is_declared_global(node.id, piece.nodes)
        )


class _LoopBodyAssignments:
    """What a loop's body writes, and what of it begins anew in each body."""

    def __init__(self, piece: LoopPiece) -> None:
        self.nodes = piece.nodes
        self.given = [pair for node in piece.nodes for pair in _assignment_pairs(node)]
        self._conditional = {
            id(inner)
            for node in piece.nodes
            if isinstance(node, ast.If)
            for each in (*node.body, *node.orelse)
            for inner in ast.walk(each)
        }

    def values(self, text: str) -> list[ast.expr]:
        """Return all that is assigned to what is so written."""
        return [value for target, value in self.given if unparse_cached(target) == text]

    def is_carried_between_bodies(self, node: _Written) -> bool:
        """Whether no line above sets it in each body, whatever it was."""
        text = unparse_cached(node)
        return not any(
            unparse_cached(target) == text
            and target.lineno <= node.lineno
            and id(target) not in self._conditional
            and text not in map(unparse_cached, _places_in_node(value))
            for target, value in self.given
        )


def _assignment_pairs(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                yield from zip(target.elts, node.value.elts, strict=False)
            else:
                yield target, node.value
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        yield node.target, node.value


def _places_in_node(node: ast.AST) -> Iterator[_Written]:
    return (each for each in ast.walk(node) if isinstance(each, _Written))


def _best_value_variable(node: ast.AST, code: _LoopBodyAssignments) -> _Written | None:
    """Return what is compared with a value and set to that value; `best = max(best, value)` does both."""
    is_call = isinstance(node, ast.Call) and unparse_cached(node.func) in ("max", "min")
    if isinstance(node, ast.Call) and is_call:
        sides = node.args
    elif isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], _ORDERS):
        sides = [node.left, *node.comparators]
    else:
        return None
    if len(sides) != 2 or _PLACES.search(unparse_cached(node)):
        return None
    for side, other in (sides, sides[::-1]):
        written = unparse_cached(other)
        for best in _places_in_node(side) if not isinstance(other, ast.Constant) else ():
            values = code.values(unparse_cached(best))
            if any(value is node for value in values) if is_call else _is_written_in_values(written, values):
                return best
    return None


def _is_written_in_values(text: str, values: list[ast.expr]) -> bool:
    return any(text in map(unparse_cached, _places_in_node(value)) for value in values)


def _patience_counter_variable(node: ast.AST, code: _LoopBodyAssignments) -> _Written | None:
    """Return what goes up by one, begins anew under a condition, and ends the loop at a number."""
    if not isinstance(node, ast.If) or not any(map(_is_loop_ending_statement, node.body)):
        return None
    for each in _places_in_node(node.test):
        text = unparse_cached(each)
        goes_up = any(
            isinstance(one, ast.AugAssign)
            and isinstance(one.op, ast.Add)
            and unparse_cached(one.target) == text
            for one in code.nodes
        )
        anew = any(isinstance(value, ast.Constant) and value.value == 0 for value in code.values(text))
        if goes_up and anew:
            return each
    return None


def _is_loop_ending_statement(node: ast.stmt) -> bool:
    is_finish = isinstance(node, ast.Expr) and unparse_cached(node.value).endswith(".finish()")
    return isinstance(node, ast.Break | ast.Return) or is_finish


def _is_declared_global(name: str, nodes: list[ast.AST]) -> bool:
    return any(isinstance(each, ast.Global | ast.Nonlocal) and name in each.names for each in nodes)


def _is_savable_data(value: Any, depth: int = 0) -> bool:
    """Whether it is a number, a tensor, or a list or dict of them: what `run.state` keeps."""
    if isinstance(value, list | tuple | dict):
        parts = [*(value.values() if isinstance(value, dict) else value)][:_FIRST]
        return depth < _FIRST and all(_is_savable_data(each, depth + 1) for each in parts)
    return value is None or isinstance(value, int | float | torch.Tensor | np.ndarray | np.generic)


def _has_same_meaning_in_function(value: Any, text: str, names: SourceNameResolver) -> bool:
    """Whether what a function calls so is what the loop calls so: another file has names of its own."""
    return names.value(ast.parse(text, mode="eval").body) is value


def _accumulators_read_after_loop(run: RunState) -> Iterator[str]:
    """Yield the lists and sums of the outermost loop of the user's that its bodies add to and the code behind it reads."""
    around = [*running_loops(run)]
    if not around:
        return
    frame, (loop, *_) = around[-1]
    names = SourceNameResolver({**frame.f_globals, **frame.f_locals}, {})
    code = _LoopBodyAssignments(LoopPiece([inner for each in loop.body for inner in ast.walk(each)], names))
    for node in dict.fromkeys(map(_accumulated_name, code.nodes)):
        if node and code.is_carried_between_bodies(node) and _is_read_after_loop(node.id, loop, frame):
            value = names.value(node)
            if type(value) in (int, float, list, dict):
                yield node.id


def _accumulated_name(node: ast.AST) -> ast.Name | None:
    match node:
        case ast.AugAssign(target=ast.Name() as name, op=ast.Add()):
            return name
        case ast.Call(func=ast.Attribute(value=ast.Name() as name, attr="append" | "extend")):
            return name
    return None


def _is_read_after_loop(name: str, loop: Loop, frame: FrameType) -> bool:
    tree = source_tree(frame.f_code.co_filename)
    inner = [
        each
        for each in (ast.walk(tree) if tree else ())
        if isinstance(each, ast.FunctionDef) and each.lineno <= loop.lineno <= (each.end_lineno or 0)
    ]
    last = max((each.lineno, each.end_lineno or 0) for each in inner)[1] if inner else sys.maxsize
    return any(
        isinstance(each, ast.Name)
        and each.id == name
        and isinstance(each.ctx, ast.Load)
        and (loop.end_lineno or 0) < each.lineno <= last
        for each in (ast.walk(tree) if tree else ())
    )


def _join_with_and(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


_BEST = (
    "{names}, which the loop compares and sets, {begin} in no checkpoint: a run that goes on begins as the script sets it, takes "
    "the first value that comes for the best, and counts anew. Keep it in the run: run.state.setdefault({name!r}, value) before "
    "the loop, and run.state[{name!r}] in its place (docs/keeping.md)"
)
_CARRIED = (
    "{names}, which the loop changes and the training reads in the next body, {begin} in no checkpoint: a run that goes on begins "
    "as the script sets it, and trains otherwise than one that was not stopped. Keep it in the run: "
    "run.state.setdefault({name!r}, value) before the loop, and run.state[{name!r}] in its place (docs/keeping.md)"
)
_ADDED = (
    "{names}, which the loop adds to and the code behind it reads, {hold} what this start has added alone: no checkpoint has it. "
    "Keep it in run.state (docs/keeping.md)"
)
