# SPDX-License-Identifier: Apache-2.0
"""Whether what a loop reads out of a variable comes to an update, by the source of its body."""

import ast
from typing import NamedTuple

from truestep.core.written_source import names_within
from truestep.run.written_names import WrittenNames

_ROUNDS = 4  # of names that are made of names


class LoopPiece(NamedTuple):
    """What runs in each body: of the loop itself, or of a function that it calls."""

    nodes: list[ast.AST]
    names: WrittenNames
    called: str = ""
    """What the function is called where it is named."""


def feeds_update(text: str, pieces: list[LoopPiece]) -> bool:
    """Whether the batch of an update, or its loss, is made of the list that is so written: one that is only shown is not."""
    holder = text.rpartition(".")[0]
    marked = {text, holder} - {""}
    marked |= {each.called for each in pieces if each.called and _Flow(each, marked).reads}
    updating = {each.called for each in pieces if each.called and any(map(_is_update, each.nodes))}
    return any(_Flow(each, marked).comes_to(updating) for each in pieces)


class _Flow:
    """One piece of source, with the names in it that are made of what is marked."""

    def __init__(self, piece: LoopPiece, marked: set[str]) -> None:
        self._piece, self._marked = piece, marked
        self._made: set[str] = set()
        for _ in range(_ROUNDS):
            for node in piece.nodes:
                self._follow(node)

    @property
    def reads(self) -> bool:
        """Whether it names what is marked at all."""
        return any(isinstance(each, ast.expr) and self._is_of(each) for each in self._piece.nodes)

    def comes_to(self, updating: set[str]) -> bool:
        """Whether an update, or a function that makes one, is given any of it."""
        calls = [each for each in self._piece.nodes if isinstance(each, ast.Call)]
        made = [each for each in calls if _is_update(each) or self._piece.names.text(each.func) in updating]
        return any(
            self._is_of(given) for each in made for given in (*each.args, *(k.value for k in each.keywords))
        )

    def _follow(self, node: ast.AST) -> None:
        match node:
            case ast.Assign(targets=targets, value=value) if self._is_of(value):
                self._make(*targets)
            case (
                ast.AnnAssign(target=target, value=ast.expr() as value)
                | ast.AugAssign(target=target, value=value)
                | ast.NamedExpr(target=target, value=value)
                | ast.For(target=target, iter=value)
                | ast.comprehension(target=target, iter=value)
            ) if self._is_of(value):
                self._make(target)
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=held), args=given)) if any(
                map(self._is_of, given)
            ):
                self._make(held)

    def _make(self, *targets: ast.expr) -> None:
        self._made |= {
            each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)
        }

    def _is_of(self, node: ast.expr) -> bool:
        return any(
            (isinstance(each, ast.Name) and each.id in self._made)
            or self._piece.names.text(each) in self._marked
            for each in names_within(node)
        )


def _is_update(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "update"
