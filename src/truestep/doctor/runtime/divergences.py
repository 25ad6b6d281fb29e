# SPDX-License-Identifier: Apache-2.0
"""Recognises by its value the divergence of a Gaussian from the standard one, whatever way it was written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from truestep.doctor.runtime.sums import WatchedTerm

if TYPE_CHECKING:
    from truestep.doctor.runtime.history import WatchHistory

MAX_NODES = 60  # of the graph behind a term
_CLOSE = 1e-3  # relative: sums in another order, and in half precision within autocast


@dataclass(frozen=True)
class WatchedDivergence:
    """How a term holds the divergence of all examples and dimensions together."""

    sign: int  # -1 where it is taken away
    count: int  # by which that is divided
    examples: int
    dimensions: int


def divergences_in_loss(
    history: WatchHistory, tensors: Iterable[Tensor]
) -> Iterator[tuple[WatchedTerm, WatchedDivergence]]:
    """Yield the terms of what goes backward that are such divergences."""
    for root in tensors if history.in_window else ():
        for term in history.sums.terms_of(root):
            if term.node is not None and (found := _divergence_in(term)) is not None:
                yield term, found


def _divergence_in(term: WatchedTerm) -> WatchedDivergence | None:
    """Return how a term is KL(N(mean, variance) || N(0, 1)), summed or averaged; None where it is something else.

    The half in it may be a weight outside of it.
    """
    value = term.value
    variances, squares = _candidates(term.node) if value else ([], [])
    for variance in variances:
        for square in (each for each in squares if each.shape == variance.shape and each is not variance):
            whole = float(0.5 * (square + variance - 1 - variance.log()).sum())
            examples = max(len(variance), 1)
            dimensions = max(variance.numel() // examples, 1)
            for count in (1, examples, examples * dimensions, dimensions):
                reached = abs(value or 0.0) * count
                if _is_close(reached, whole) or _is_close(reached, 2 * whole):
                    return WatchedDivergence(1 if (value or 0.0) > 0 else -1, count, examples, dimensions)
    return None


def _is_close(one: float, other: float) -> bool:
    return abs(one - other) <= _CLOSE * abs(other)


def _candidates(node: Any) -> tuple[list[Tensor], list[Tensor]]:
    """Return what may be variances (exponentials, squares), and what may be squared means, in a term's graph."""
    exponentials: list[Tensor] = []
    squares: list[Tensor] = []
    waiting, seen = [node], 0
    while waiting and seen < MAX_NODES:
        current = waiting.pop(0)
        seen += 1
        name = current.name() if hasattr(current, "next_functions") else ""
        if name == "ExpBackward0":
            exponentials.append(_saved(current, "_saved_result"))
        elif name == "PowBackward0" and getattr(current, "_saved_exponent", 0) == 2:
            squares.append(_saved(current, "_saved_self").square())
        elif name == "MulBackward0":
            first, second = _saved(current, "_saved_self"), _saved(current, "_saved_other")
            if first.numel() > 1 and first.data_ptr() == second.data_ptr():
                squares.append(first.square())
        waiting += [each for each, _ in getattr(current, "next_functions", ()) if each is not None]
    whole = [each for each in (*exponentials, *squares) if each.numel() > 1]
    return whole, [each for each in squares if each.numel() > 1]


def _saved(node: Any, name: str) -> Tensor:
    found = getattr(node, name)
    return found.detach().float() if isinstance(found, Tensor) else Tensor()
