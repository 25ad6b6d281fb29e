# SPDX-License-Identifier: Apache-2.0
"""An experiment at an evaluation: children go through it in other ways, and what they print is compared."""

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from truestep.doctor.experiments.budget import ExperimentBudget
from truestep.doctor.experiments.child_continuation import outcome_of_child
from truestep.doctor.experiments.evaluation_child import (
    LONGER_BY,
    EvaluationChange,
    EvaluationChangeKind,
    EvaluationChild,
    EvaluationPlan,
)
from truestep.doctor.experiments.load_replay import has_uniform_batches
from truestep.doctor.experiments.outcome import ChildOutcome
from truestep.doctor.experiments.printed_figures import PrintedFigure, printed_figures
from truestep.doctor.experiments.skip_reasons import (
    ExperimentNotTriedError,
    RelationNotApplicableError,
    why_child_raised,
)
from truestep.doctor.finding import Place

MOST_EXAMPLES = 20_000
_MOST_ROUNDED = 0.02  # of a printed number


@dataclass
class EvaluationExperiment:
    """Children that go through an evaluation, each forked when it is first asked for."""

    plan: EvaluationPlan
    place: Place  # where the first batch is handed over
    budget: ExperimentBudget
    active_layers: list[str]  # that act as in training
    num_bytes: int = 0
    _known: dict[EvaluationChange, ChildOutcome] = field(default_factory=dict)

    def training_mode_note(self) -> str:
        """Return the end of a message: which layers act as in training; nothing where none does."""
        return f". In training mode are {', '.join(self.active_layers)}" if self.active_layers else ""

    def figures(self, change: EvaluationChange) -> list[PrintedFigure]:
        """Return the numbers that a child printed.

        Raises:
            ExperimentNotTriedError: it did not come so far.
        """
        found = self._outcome_of_change(change)
        if not found.is_whole:
            raise ExperimentNotTriedError("the evaluation did not go through all examples of its loader")
        return printed_figures(found.printed)

    def _outcome_of_change(self, change: EvaluationChange) -> ChildOutcome:
        if change not in self._known:
            self._known[change] = outcome_of_child(
                self.budget, self.num_bytes, lambda going_on: EvaluationChild(going_on, self.plan, change)
            )
        found = self._known[change]
        if found.failure is not None or found.error is not None:
            raise ExperimentNotTriedError(found.failure or why_child_raised(found.error))
        return found

    @property
    def num_batches_seen(self) -> int:
        """How many batches the evaluation takes of its loader; all, unless it leaves it."""
        found = self._outcome_of_change(EvaluationChange())
        return len(self.plan.cut) if found.is_whole else found.num_batches

    def figure_divided_by_length(self) -> tuple[PrintedFigure, PrintedFigure] | None:
        """Return a figure of an evaluation that leaves its loader, with what it becomes where the loader says it is longer.

        It is one that moves with the examples, and shrinks as the length grows: others may reckon with what they did not see.

        Raises:
            ExperimentNotTriedError: the children can't be compared.
        """
        kinds: tuple[EvaluationChangeKind, ...] = ("none", "longer", "one example")
        each = [self._outcome_of_change(EvaluationChange(kind)) for kind in kinds]
        behind = [printed_figures(one.printed[one.told_before_last :]) for one in each]
        if len({one.num_batches for one in each}) > 1 or len({len(one) for one in behind}) > 1:
            raise ExperimentNotTriedError(
                "the evaluation leaves its loader, and sees other batches with the change"
            )
        for before, after, other in zip(*behind, strict=True):
            if before.differs(other) and math.isclose(
                before.value, LONGER_BY * after.value, rel_tol=_MOST_ROUNDED
            ):
                return before, after
        return None

    def demand_no_draws(self) -> None:
        """Make sure that the evaluation draws no random numbers: with other batches each example gets others.

        Raises:
            ExperimentNotTriedError: it does.
        """
        self.figures(EvaluationChange())
        if self._known[EvaluationChange()].draws:
            raise ExperimentNotTriedError("the evaluation draws random numbers, other ones for each batch")

    @cached_property
    def steady_figure_indexes(self) -> list[int]:
        """The numbers, by their place in the output, that are the same when nothing is changed.

        Raises:
            ExperimentNotTriedError: there are none.
        """
        first, second = (self.figures(EvaluationChange(repeated=each)) for each in (False, True))
        if not first:
            raise RelationNotApplicableError("nothing was printed or logged before the next training batch")
        if len(first) != len(second):
            raise ExperimentNotTriedError("the evaluation prints another count of numbers each time")
        kept = [place for place, (a, b) in enumerate(zip(first, second, strict=True)) if a.value == b.value]
        if not kept:
            raise ExperimentNotTriedError("no number that is printed is the same when nothing is changed")
        return kept

    def changed(self, change: EvaluationChange) -> tuple[PrintedFigure, PrintedFigure] | None:
        """Return the first number that is another one with a change, as it is and as it becomes; None if there is none.

        Raises:
            ExperimentNotTriedError: the outputs can't be compared.
        """
        steady = self.steady_figure_indexes
        before, after = self.figures(EvaluationChange()), self.figures(change)
        if len(before) != len(after):
            raise ExperimentNotTriedError("another count of numbers is printed with the change")
        differing = ((before[place], after[place]) for place in steady)
        return next(((a, b) for a, b in differing if a.differs(b)), None)


def evaluation_plan(iterator: Any) -> EvaluationPlan:
    """Return what is known of the evaluation that begins with an iterator's first batch.

    Raises:
        ExperimentNotTriedError: its examples can't be loaded once more.
    """
    if not has_uniform_batches(iterator):
        raise ExperimentNotTriedError(
            "the evaluation's loader does not cut batches of one size out of a data set"
        )
    if len(iterator._dataset) > MOST_EXAMPLES:
        raise ExperimentNotTriedError(f"the evaluation has more than {MOST_EXAMPLES:,} examples")
    sampler = iterator._index_sampler
    if type(sampler.sampler).__name__ != "SequentialSampler":
        raise ExperimentNotTriedError("the evaluation's examples come in a random order, or are chosen")
    cut = [list(each) for each in sampler]
    return EvaluationPlan(iterator, cut, _other_batch_size(len(iterator._dataset), sampler.batch_size))


def _other_batch_size(num_examples: int, size: int) -> int:
    """Return another batch size: where all batches are of one size, one with which they are again."""
    if num_examples % size:
        return max(1, int(0.6 * size)) if size > 2 else size + 1
    sizes = [2 * size, size // 2, 3 * size, size // 3, 1]
    return next(each for each in sizes if each and each <= num_examples and num_examples % each == 0)
