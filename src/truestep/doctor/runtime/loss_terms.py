# SPDX-License-Identifier: Apache-2.0
"""What a loss was added up of: its terms, each with its value, its weight, its place and the graph behind it."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeGuard

from truestep.doctor.finding import Place
from truestep.doctor.runtime.value_origins import PASSES, WatchedOrigin, WatchedOrigins

if TYPE_CHECKING:
    from torch import Tensor

MAX_SUMS = 4096  # numbers; then what is remembered is forgotten
MAX_TERMS = 256  # of one loss; one of more, with a penalty for each weight, is not taken apart
# of one number they give the same one, with its graph
_PASSING = (PASSES - {"data", "detach", "requires_grad"}) | {"sum", "mean"}
FROM_NUMBERS = frozenset({"tensor", "as_tensor"})  # they make a tensor of Python's numbers
_SIGNS = {"add": (1.0, 1.0), "sub": (1.0, -1.0), "subtract": (1.0, -1.0), "rsub": (-1.0, 1.0)}


@dataclass(frozen=True, slots=True, eq=False)
class WatchedTerm:
    """One summand of a loss: a tensor of one number, or a number of Python's."""

    number: Tensor | float | None  # its value without its weight; None where it was changed since
    added_at: Place
    node: Any = None  # of its graph (a leaf is its own); None where nothing goes backward from it
    origin: WatchedOrigin | None = None  # where it was computed, if that was seen
    weight: float = 1.0  # by which it enters what goes backward
    rows: _SumOfParts | None = (
        None  # what it is the mean or the sum of, where losses of examples were added up
    )

    @property
    def is_plain_number(self) -> bool:
        """Whether it is a number of Python's: of how that was computed nothing is left."""
        return isinstance(self.number, float)

    @property
    def is_made_here_of_numbers(self) -> bool:
        """Whether it is a leaf that was made in this step: its gradient ends there."""
        made = self.origin.operation if self.origin is not None else ""
        return made in FROM_NUMBERS and getattr(self.node, "is_leaf", False)

    @property
    def value(self) -> float | None:
        """Its value without its weight."""
        return None if self.number is None else float(self.number)


@dataclass(frozen=True, slots=True, eq=False)
class _SumOfParts:
    parts: tuple[
        tuple[Any, _SumOfParts | WatchedTerm], ...
    ]  # each with its factor, a number or a tensor of one


class WatchedSums:
    """The sums of this step: copies of single numbers, and the graphs behind them, which live as long as the step."""

    def __init__(self, origins: WatchedOrigins) -> None:
        self._origins = origins
        self._known: dict[int, tuple[weakref.ref[Tensor], _SumOfParts]] = {}
        self._rows: dict[
            int, tuple[weakref.ref[Tensor], _SumOfParts]
        ] = {}  # of one loss for each example, and their means

    def note(self, result: Tensor, args: tuple[Any, ...], origin: WatchedOrigin) -> None:
        """Remember what a number that carries a graph was added up of, or which number it weighs."""
        parts = _weighted_summands(origin.operation, args)
        if not parts or not all(_is_single_number(each) or self._is_known_value(each) for _, each in parts):
            self._note_rows(result, args, origin)
            return
        if len(self._known) >= MAX_SUMS:
            self._known.clear()
        made = tuple((factor, self._sum_part(each, result, origin.place)) for factor, each in parts)
        self._known[id(result)] = weakref.ref(result), _SumOfParts(made)

    def _note_rows(self, result: Tensor, args: tuple[Any, ...], origin: WatchedOrigin) -> None:
        """Remember which losses of examples were added up, and what is the mean or the sum of these."""
        parts = _row_parts(origin.operation, args)
        is_mean = result.dim() == 0
        if args and result is args[0]:  # changed in place: of what is known no more
            self._rows.pop(id(result), None)
            return
        if not parts or (is_mean and self._known_row_sum(args[0]) is None):
            return
        if len(self._rows) >= MAX_SUMS:
            self._rows.clear()
        made = tuple((factor, self._row_part(each, result, origin.place)) for factor, each in parts)
        self._rows[id(result)] = weakref.ref(result), _SumOfParts(made)

    def _row_part(self, value: Any, result: Tensor, place: Place) -> _SumOfParts | WatchedTerm:
        if _is_single_number(value):
            return self._sum_part(value, result, place)
        known = self._known_row_sum(value)
        return known or WatchedTerm(value.detach().sum(), place, _graph_node(value), self._origins.of(value))

    def _known_row_sum(self, value: Any) -> _SumOfParts | None:
        known = self._rows.get(id(value))
        return known[1] if known is not None and known[0]() is value else None

    def _sum_part(self, value: Any, result: Tensor, place: Place) -> _SumOfParts | WatchedTerm:
        if isinstance(value, (int, float)):
            return WatchedTerm(float(value), place)
        if self._is_known_value(value):
            return self._known[id(value)][1]
        if value is result:  # changed in place: the first thing behind it is what it was before
            behind = getattr(_graph_node(value), "next_functions", ())
            return WatchedTerm(None, place, behind[0][0] if behind else None)
        origin, rows = self._origins.of(value), self._known_row_sum(value)
        return WatchedTerm(value.detach().clone(), place, _graph_node(value), origin, rows=rows)

    def _is_known_value(self, value: Any) -> bool:
        known = self._known.get(id(value))
        return known is not None and known[0]() is value

    def terms_of(self, loss: Tensor, *, in_rows: bool = False) -> list[WatchedTerm]:
        """Return the terms of what goes backward; itself where it was not seen added up.

        `in_rows` takes apart the mean of what was added up for each example, too: a term's number is its sum over them. So is
        taken apart what goes backward as one loss for each example.
        """
        in_rows = in_rows or loss.dim() == 1
        begun: _SumOfParts | WatchedTerm
        if self._is_known_value(loss):
            begun = self._known[id(loss)][1]
        elif loss.numel() == 1 or loss.dim() == 1:
            origin = self._origins.of(loss)
            place = origin.place if origin is not None else Place("<unknown>", 0)
            begun = WatchedTerm(
                loss.detach().sum(), place, _graph_node(loss), origin, rows=self._known_row_sum(loss)
            )
        else:
            return []
        found: list[WatchedTerm] = []
        waiting: list[tuple[float, _SumOfParts | WatchedTerm]] = [(1.0, begun)]
        while waiting and len(found) + len(waiting) <= MAX_TERMS:
            weight, part = waiting.pop()
            if in_rows and isinstance(part, WatchedTerm) and part.rows is not None:
                part = part.rows
            if isinstance(part, WatchedTerm):
                found.append(replace(part, weight=weight))
            else:
                waiting += [(weight * float(factor), each) for factor, each in reversed(part.parts)]
        return [] if waiting else found

    def forget(self) -> None:
        """A step is over."""
        self._known.clear()
        self._rows.clear()


def _row_parts(operation: str, args: tuple[Any, ...]) -> list[tuple[float, Any]]:
    """Return the losses of examples that are added up, each with its factor; or the one that a mean is taken of.

    A single number is added for each example.
    """
    # an index may be a NumPy array, a list or a range: of an operation's values only tensors are added up
    rows = [each for each in args if _is_tensor(each) and each.dim() == 1 and each.numel() > 1]
    if not rows or any(each.shape != rows[0].shape for each in rows):
        return []
    if len(args) == 1:
        return _reduced_row(operation, args[0])
    if len(args) != 2 or not all(
        each is rows[0] or each is rows[-1] or _is_single_number(each) for each in args
    ):
        return []
    if signs := _SIGNS.get(operation):
        counts = [rows[0].numel() if _is_single_number(each) else 1 for each in args]
        return [(sign * count, each) for sign, count, each in zip(signs, counts, args, strict=True)]
    return _weighted_by_constant(operation, *args) if len(rows) == 1 else []


def _reduced_row(operation: str, value: Tensor) -> list[tuple[float, Any]]:
    if operation in ("neg", "negative"):
        return [(-1.0, value)]
    share = {"mean": 1 / value.numel(), "sum": 1.0}.get(operation)
    return [] if share is None else [(share, value)]


def _weighted_summands(operation: str, args: tuple[Any, ...]) -> list[tuple[Any, Any]]:
    """Return what an operation adds up, each with its factor; nothing where it does something else."""
    if not args:
        return []
    if operation == "stack":
        values = args[0] if isinstance(args[0], (list, tuple)) else ()
        return [(1.0, each) for each in values] if all(map(_is_single_number, values)) else []
    if operation in _PASSING and _is_tensor(args[0]):
        return [(1 / max(args[0].numel(), 1) if operation == "mean" else 1.0, args[0])]
    if not all(map(_is_single_number, args)):
        return []
    if operation in ("neg", "negative"):
        return [(-1.0, args[0])]
    if len(args) != 2:
        return []
    signs = _SIGNS.get(operation)
    return list(zip(signs, args, strict=True)) if signs else _weighted_by_constant(operation, *args)


def _weighted_by_constant(operation: str, first: Any, second: Any) -> list[tuple[Any, Any]]:
    """Return the number with a graph, weighed by the one without."""
    if operation == "mul":
        both = [(second, first), (first, second)]
    elif operation in ("div", "true_divide", "truediv"):
        both = [(1 / second, first)] if not _has_graph(second) else []
    else:
        return []
    return next(([each] for each in both if _has_graph(each[1]) and not _has_graph(each[0])), [])


def _graph_node(value: Tensor) -> Any:
    """Return what a value's graph begins with, a leaf itself; None where it has none."""
    if not value.requires_grad:
        return None
    try:
        return value if value.is_leaf else value.grad_fn
    except RuntimeError:  # a view whose base was changed in a way that autograd refuses
        return None


def _has_graph(value: Any) -> bool:
    return getattr(value, "requires_grad", False)


def _is_single_number(value: Any) -> bool:
    return isinstance(value, (int, float)) or (_is_tensor(value) and value.numel() == 1)


def _is_tensor(value: Any) -> TypeGuard[Tensor]:
    from torch import Tensor  # not where training code is only read

    return isinstance(value, Tensor)
