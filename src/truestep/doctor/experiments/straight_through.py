# SPDX-License-Identifier: Apache-2.0
"""Straight-through estimators: sums in which a term without a graph takes back what another one adds with its graph."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from truestep.core.user_frames import line_of_user_code

_SIGNS = {"add": 1, "sub": -1}


@dataclass(frozen=True)
class _SumOfTerms:
    """A tensor as a sum of others.

    Attributes:
        value: the tensor; it is kept, so that its identity stays its own.
        opened: the same with the graph that was cut.
        terms: how often each tensor is added, by its identity and whether its graph was cut.
        lines: of the user's code that cut it.
    """

    value: Tensor
    opened: Tensor
    terms: dict[tuple[int, bool], int] = field(default_factory=dict)
    lines: frozenset[str | None] = frozenset()

    @property
    def cancels(self) -> bool:
        """Whether a term is taken back without its graph, as in `z + (q - z).data`."""
        return any(
            count and count == -self.terms.get((source, True), 0)
            for (source, is_cut), count in self.terms.items()
            if not is_cut
        )


class StraightThrough:
    """Knows the sums of a step, and opens the cut of those whose terms cancel: this form is written on purpose.

    Attributes:
        lines: that cut what was opened.
    """

    def __init__(self) -> None:
        self.lines: set[str | None] = set()
        self._sums: dict[int, _SumOfTerms] = {}

    def cut(self, given: Tensor, result: Tensor) -> None:
        """Note that a tensor has the values of another one, without its graph."""
        known = self._terms_of_tensor(given)
        terms: Counter[tuple[int, bool]] = Counter()
        for (source, _), count in known.terms.items():
            terms[source, True] += count
        self._sums[id(result)] = _SumOfTerms(
            result, known.opened, dict(terms), known.lines | {line_of_user_code()}
        )

    def sum_with_graph(
        self, func: Callable[..., Any], name: str, args: tuple[Any, ...], result: Tensor
    ) -> Tensor:
        """Return what a sum or difference gives: with the whole graph, where a cut term takes another one back."""
        if name not in _SIGNS or len(args) != 2 or not all(isinstance(each, Tensor) for each in args):
            return result
        first, second = (self._terms_of_tensor(each) for each in args)
        terms = Counter(first.terms)
        for term, count in second.terms.items():
            terms[term] += _SIGNS[name] * count
        is_cut = any(each for _, each in terms)
        opened = func(first.opened, second.opened) if is_cut else result
        found = _SumOfTerms(result, opened, dict(terms), first.lines | second.lines)
        if found.cancels:
            self.lines |= found.lines
            return found.opened
        self._sums[id(result)] = found
        return result

    def _terms_of_tensor(self, given: Tensor) -> _SumOfTerms:
        known = self._sums.get(id(given))
        if known is None or known.value is not given:
            known = self._sums[id(given)] = _SumOfTerms(given, given, {(id(given), False): 1})
        return known
