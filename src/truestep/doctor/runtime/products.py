# SPDX-License-Identifier: Apache-2.0
"""Finds a product of log-probabilities and a prediction that is itself trained by an error, in the graphs of a loss's terms."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from truestep.doctor.runtime.signs import operation_of_node
from truestep.doctor.runtime.sums import WatchedTerm

_DEPTH = 8  # operations behind a term
_AVERAGES = frozenset({"Mean", "Sum", "Neg", "Div", "View", "Squeeze", "Minimum"})
# what makes an advantage of values: differences, their scale, their shape
_KEEPING = frozenset(
    {"Sub", "Add", "Div", "Neg", "View", "Squeeze", "Unsqueeze", "Stack", "Cat", "Select", "Flip"}
)
_ERRORS = ("Mse", "SmoothL1", "Huber", "Pow")
_LIKELY = frozenset({"LogSoftmax", "Gather", "Logsumexp", "Log", "Exp", "LogSigmoid"})


def advantage_with_graph(terms: list[WatchedTerm]) -> WatchedTerm | None:
    """Return the term that multiplies log-probabilities with what another term trains by an error; None without one."""
    trained: set[Any] = set()
    for term in terms:
        for node in _within([term.node], _AVERAGES):
            if operation_of_node(node).removesuffix("Loss") in _ERRORS:
                trained |= set(_within(_behind(node), _KEEPING))
    for term in terms:
        for node in _within([term.node], _AVERAGES):
            sides = _behind(node) if operation_of_node(node) == "Mul" else []
            if len(sides) == 2 and (
                _is_advantage(sides[0], sides[1], trained) or _is_advantage(sides[1], sides[0], trained)
            ):
                return term
    return None


def _is_advantage(factor: Any, other: Any, trained: set[Any]) -> bool:
    mine = _within([factor], _KEEPING)
    if trained.isdisjoint(mine):
        return False
    around = _within([other], None)
    return any(operation_of_node(each) in _LIKELY for each in around) and trained.isdisjoint(around)


def _within(nodes: Iterable[Any], through: frozenset[str] | None) -> list[Any]:
    """Return nodes and what lies near behind them, through some operations alone, or all."""
    found = [each for each in nodes if each is not None]
    edge = found
    for _ in range(_DEPTH):
        edge = [
            behind
            for each in edge
            if through is None or operation_of_node(each) in through
            for behind in _behind(each)[:2]
            if behind not in found
        ]
        found = [*found, *edge]
    return found


def _behind(node: Any) -> list[Any]:
    return [each for each, _ in getattr(node, "next_functions", ()) if each is not None]
