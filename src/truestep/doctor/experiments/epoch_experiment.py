# SPDX-License-Identifier: Apache-2.0
"""An experiment at an epoch's start: what is printed behind a short epoch is compared with the values of its batches."""

import math
import re
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch.utils.data import BatchSampler

from truestep.doctor.experiments.budget import ExperimentBudget
from truestep.doctor.experiments.child_continuation import outcome_of_child
from truestep.doctor.experiments.epoch_child import NUM_BATCHES, NUM_BATCHES_WITHIN, EpochChild, EpochPlan
from truestep.doctor.experiments.epoch_progress_figures import BY_BATCHES, BY_EXAMPLES, FiguresWithinEpoch
from truestep.doctor.experiments.load_replay import examples_handed_over, is_loaded_by_index
from truestep.doctor.experiments.outcome import ChildOutcome
from truestep.doctor.experiments.printed_figures import PrintedFigure, printed_figures
from truestep.doctor.experiments.skip_reasons import (
    ExperimentNotTriedError,
    RelationNotApplicableError,
    why_child_raised,
)
from truestep.doctor.finding import Place

_CALLED_MEAN = re.compile(r"\b(avg|average|mean)", re.IGNORECASE)
_MOST_APART = 0.3  # of a value and the same with other random numbers, as of dropout
_LEAST_DIGITS = 3  # of a figure, so that it is no other one by chance
_LEAST_SPREAD = 1e-3  # of the values: of equal ones every formula of a mean is right


@dataclass(frozen=True)
class WrongFigure:
    """A printed number that is made of a series of values in a way that is no mean."""

    figure: PrintedFigure
    formula: str
    source: str  # where the values were read
    mean: float
    is_within: bool = False  # an epoch, not behind it


@dataclass
class EpochExperiment:
    """A child that goes through an epoch of a few batches."""

    plan: EpochPlan
    place: Place  # where the first batch is handed over
    budget: ExperimentBudget
    num_examples: int  # of the data set
    window: int = 1  # so many backwards lead to a step
    num_bytes: int = 0
    _known: dict[tuple[bool, int], ChildOutcome] = field(default_factory=dict)

    @property
    def sizes(self) -> Sequence[int]:
        """The sizes of the child's batches, where it looks at what is printed behind them."""
        return self.plan.sizes[:NUM_BATCHES]

    @property
    def num_batches(self) -> int:
        """How many batches the child's epoch has."""
        return len(self.sizes)

    def outcome(self, *, doubled: bool = False, count: int = NUM_BATCHES) -> ChildOutcome:
        """Return what a child saw of so many batches; if asked, one whose first batch holds every example twice.

        Raises:
            ExperimentNotTriedError: nothing can be learned from it.
        """
        key, plan = (doubled, count), self.plan.cut(count)
        if key not in self._known:
            self._known[key] = outcome_of_child(
                self.budget, self.num_bytes, lambda going_on: EpochChild(going_on, plan, doubled=doubled)
            )
        found = self._known[key]
        if found.failure is not None or found.error is not None:
            raise ExperimentNotTriedError(found.failure or why_child_raised(found.error))
        if not found.is_whole:
            raise ExperimentNotTriedError("the script left the epoch before its loader had no further batch")
        return found

    def _is_mean_of_batch(self, source: str) -> bool:
        """Tell whether values are means over the examples of their batch: they stay where each stands twice, and sums do not."""
        before = self.outcome().values.get(source, [math.nan])[0]
        after = self.outcome(doubled=True).values.get(source, [math.nan])[0]
        return abs(after - before) <= _MOST_APART * abs(before)

    def wrong_figures(self) -> Iterator[WrongFigure]:
        """Yield the figures behind the epoch that are made of its values, and by no formula of a mean.

        Raises:
            ExperimentNotTriedError: there is none that is made of them at all.
        """
        known = yield from self._wrong_figures_after_epoch()
        if not known and not (yield from self._wrong_figures_within_epoch()):
            raise RelationNotApplicableError("no number that is printed is made of values that batches gave")

    def _wrong_figures_within_epoch(self) -> Generator[WrongFigure, None, bool]:
        found = FiguresWithinEpoch(self)
        known = False
        for figure, formula, source, mean in found.formulas():
            known = True
            is_count = formula in (BY_EXAMPLES, BY_BATCHES)
            if formula is not None and (not is_count or self._is_mean_of_batch(source)):
                yield WrongFigure(figure, formula, source, mean, is_within=True)
        return known

    def _wrong_figures_after_epoch(self) -> Generator[WrongFigure, None, bool]:
        figures, values = printed_figures(self.outcome().printed), self.outcome().values
        known = False
        moving = {
            source: series
            for source, series in values.items()
            if max(series) - min(series) > _LEAST_SPREAD * max(map(abs, series))
        }
        for figure in figures:
            if any(
                figure.is_rounding_of(value)
                for series in moving.values()
                for value in self._right_aggregates(series)
            ):
                known = True
                continue
            for source, series in moving.items():
                if formula := self._wrong_formula(figure, series):
                    known = True
                    if self._is_mean_of_batch(source):
                        yield WrongFigure(figure, formula, source, sum(series) / len(series))
        return known

    def _sum_over_examples(self, series: Sequence[float]) -> float:
        """Return the sum over the examples of values that are means over their batch."""
        return sum(value * size for value, size in zip(series, self.sizes, strict=True))

    def _right_aggregates(self, series: Sequence[float]) -> list[float]:
        weighted = self._sum_over_examples(series)
        return [
            sum(series) / len(series),
            weighted / sum(self.sizes),
            sum(series),
            weighted,
            weighted / self.num_examples,  # of a whole epoch it would be the mean
        ]

    def _wrong_formula(self, figure: PrintedFigure, series: Sequence[float]) -> str | None:
        """Return how a figure is made of values, where that is known and no mean."""
        if figure.num_digits < _LEAST_DIGITS:
            return None
        if figure.is_rounding_of(sum(series) / self.num_examples) or figure.is_rounding_of(
            sum(series) / sum(self.sizes)
        ):
            return BY_EXAMPLES
        # a loss that was divided for an accumulation, and is multiplied again, has the same factor
        if self.sizes[0] != self.window and figure.is_rounding_of(
            self._sum_over_examples(series) / len(series)
        ):
            return BY_BATCHES
        if _CALLED_MEAN.search(figure.before) and figure.is_rounding_of(series[-1]):
            return "that of the last batch"
        return None


def epoch_plan(iterator: Any, batch: Any) -> EpochPlan:
    """Return what is known of the epoch that begins with a batch.

    Raises:
        ExperimentNotTriedError: its further examples can't be loaded here.
    """
    sampler = iterator._index_sampler
    if not is_loaded_by_index(iterator) or type(sampler) is not BatchSampler:
        raise ExperimentNotTriedError("the loader does not cut batches of one size out of a data set")
    examples = examples_handed_over(iterator, batch)
    sizes = _first_batch_sizes(sampler)
    if len(sizes) < 2:
        raise RelationNotApplicableError("an epoch has a single batch")
    if sizes[0] != examples.count:
        raise ExperimentNotTriedError("the loader hands over another number of examples than it cuts")
    return EpochPlan(iterator, examples, sizes)


def _first_batch_sizes(sampler: Any) -> list[int]:
    """Return the sizes of the first batches of an epoch, of which a sampler says how many examples it has."""
    try:
        num_examples, size = len(sampler.sampler), int(sampler.batch_size)
    except (TypeError, NotImplementedError):
        raise ExperimentNotTriedError("the loader's sampler does not say how many examples it has") from None
    sizes = [min(size, num_examples - first) for first in range(0, num_examples, size)]
    return [each for each in sizes if each == size or not sampler.drop_last][:NUM_BATCHES_WITHIN]
