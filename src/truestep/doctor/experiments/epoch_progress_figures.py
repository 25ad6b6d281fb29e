# SPDX-License-Identifier: Apache-2.0
"""Figures that are printed within an epoch, compared with the values of the batches since the last one, or of all so far."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from truestep.doctor.experiments.epoch_child import NUM_BATCHES_WITHIN
from truestep.doctor.experiments.printed_figures import PrintedFigure, printed_figures

if TYPE_CHECKING:
    from truestep.doctor.experiments.epoch_experiment import EpochExperiment

BY_EXAMPLES = "the sum over batches, divided by the number of examples,"
BY_BATCHES = "the sum over examples, divided by the number of batches,"
_COUNTS = re.compile(r"[-\d.]+(?:e[-+]?\d+)?")
_LEAST_FIGURES, _LEAST_DIGITS = 2, 3


@dataclass(frozen=True)
class _FigureAtBatch:
    """A figure, and the batches before it that it may be of."""

    figure: PrintedFigure
    last: int  # how many batches of the epoch were over
    since: int  # how many were where the same was printed before


class FiguresWithinEpoch:
    """The figures of a child's epoch, by the words before them."""

    def __init__(self, experiment: "EpochExperiment") -> None:
        self._found = experiment.outcome(count=NUM_BATCHES_WITHIN)
        self._sizes, self._window = experiment.plan.sizes, experiment.window
        self._by_words: dict[str, list[_FigureAtBatch]] = {}
        for number, printed in enumerate(self._found.printed_within, 1):
            for figure in printed_figures(printed):
                before = self._by_words.setdefault(_COUNTS.sub("#", figure.before), [])
                before.append(_FigureAtBatch(figure, number, before[-1].last if before else 0))

    def formulas(self) -> Iterator[tuple[PrintedFigure, str | None, str, float]]:
        """Yield each kind of figure that is made of values: the last one, how if by no formula of a mean, where, and their mean."""
        for printed in self._by_words.values():
            if len(printed) < _LEAST_FIGURES or any(each.last == each.since for each in printed):
                continue
            for source, values in self._found.values_within.items():
                if (known := self._formula_of_figures(printed, source, values)) is not None:
                    last = printed[-1]
                    own = [each for each in values[last.since : last.last] if not math.isnan(each)]
                    yield last.figure, known or None, source, sum(own) / len(own)
                    break

    def _formula_of_figures(
        self, printed: Sequence[_FigureAtBatch], source: str, values: Sequence[float]
    ) -> str | None:
        """Return how figures are made of values, empty where it is right, None where they are not."""
        if all(each.figure.is_rounding_of(values[each.last - 1]) for each in printed):
            return self._divided_loss_note(source)
        for begins in ("print", "epoch"):
            made = [
                self._formulas_that_fit(each, values, each.since if begins == "print" else 0)
                for each in printed
            ]
            for formula in ("", BY_EXAMPLES, BY_BATCHES):
                is_told = not formula or all(each.figure.num_digits >= _LEAST_DIGITS for each in printed)
                if is_told and all(formula in each for each in made):
                    return formula
        return None

    def _divided_loss_note(self, source: str) -> str:
        """Return that a loss was divided for an accumulation, where it was."""
        divisor = self._found.divided.get(source)
        return (
            f"the loss divided by the {self._window} of an accumulation"
            if divisor == self._window > 1
            else ""
        )

    def _formulas_that_fit(self, printed: _FigureAtBatch, values: Sequence[float], since: int) -> set[str]:
        own, sizes = values[since : printed.last], self._sizes[since : printed.last]
        total, weighted = sum(own), sum(value * size for value, size in zip(own, sizes, strict=True))
        figure = printed.figure
        right = (total / len(own), total, weighted / sum(sizes), weighted)
        found = {""} if any(map(figure.is_rounding_of, right)) else set()
        found |= {BY_EXAMPLES} if figure.is_rounding_of(total / sum(sizes)) else set()
        by_batches = sizes[0] != self._window and figure.is_rounding_of(weighted / len(own))
        return found | ({BY_BATCHES} if by_batches else set())
