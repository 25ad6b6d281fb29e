# SPDX-License-Identifier: Apache-2.0
"""What a relation is: a check that compares children of a running script, each with one thing changed."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from truestep.doctor.check import Check
from truestep.doctor.experiments.skip_reasons import RelationNotApplicableError
from truestep.doctor.finding import Place, Severity

if TYPE_CHECKING:
    from torch import nn

    from truestep.doctor.experiments import epoch_experiment as epoch
    from truestep.doctor.experiments import evaluation_experiment as evaluation
    from truestep.doctor.experiments import schedule_state_reload, step_experiment
    from truestep.doctor.experiments.printed_figures import PrintedFigure

    EpochExperiment = epoch.EpochExperiment
    EvaluationExperiment = evaluation.EvaluationExperiment
    StateExperiment = schedule_state_reload.StateExperiment
    StepExperiment = step_experiment.StepExperiment
else:  # for annotations alone: who reads the page of a relation loads no torch
    EpochExperiment = EvaluationExperiment = StateExperiment = StepExperiment = Any

ExperimentPlace = Literal["step", "evaluation", "epoch", "state"]


@dataclass(frozen=True)
class BrokenRelation:
    """That a relation does not hold: both numbers, and what they mean."""

    message: str
    severity: Severity
    place: Place | None = None  # where that is known better than where the batch is handed over
    evidence: dict[str, Any] = field(default_factory=dict)


class ExperimentRelation(Check):
    """A relation that any right training keeps, tried where a loader hands over a batch or an evaluation begins."""

    is_preview = True
    tried_at: ClassVar[ExperimentPlace] = "step"
    # about so many; what needs few is tried first, since the time may not do for all
    num_children: ClassVar[int] = 1

    def why_not_applicable(self, criteria: "Mapping[str, nn.Module]") -> str | None:
        """Return why there is nothing in a run that this speaks of, as far as the criteria of the script's own tell it."""
        del criteria
        return None

    @abstractmethod
    def try_out(self, experiment: Any) -> Iterator[BrokenRelation]:
        """Yield how it is broken; nothing where it holds; raise `ExperimentNotTriedError` where it can't be tried."""


class StepRelation(ExperimentRelation):
    """A relation of what one batch makes of the gradients."""

    needs_batch: ClassVar[bool] = True  # whether it changes the batch, so that it must be known

    @abstractmethod
    def try_out(self, experiment: StepExperiment) -> Iterator[BrokenRelation]:
        """Ask for children, and compare them."""


class FollowedRelation(StepRelation):
    """A relation of what a step computes: a child follows its operations, and no batch is changed."""

    needs_batch = False
    follows: ClassVar[str]
    """What of the operations is followed."""

    def found(self, experiment: StepExperiment, counted: str = "", nothing: str = "") -> dict[str, Any]:
        """Return what a child finds that follows the operations.

        Raises:
            RelationNotApplicableError: it finds nothing of what is counted.
        """
        from truestep.doctor.experiments.batch_changes import Change

        found = experiment.changed(Change(follows=self.follows)).followed
        if counted and not found[counted]:
            raise RelationNotApplicableError(nothing)
        return found

    def makes_a_difference(self, experiment: StepExperiment, **changed: Any) -> bool:
        """Tell whether the step is another one with a further change, while its operations are followed."""
        from truestep.doctor.experiments.batch_changes import Change

        return experiment.makes_a_difference(Change(follows=self.follows, **changed))

    def at(
        self, line: str, message: str, severity: Severity, evidence: dict[str, Any] | None = None
    ) -> BrokenRelation:
        """Return that the relation is broken at a line."""
        return BrokenRelation(message, severity, Place.of_text(line), evidence or {})


class EpochRelation(ExperimentRelation):
    """A relation of what is printed behind an epoch."""

    tried_at = "epoch"

    @abstractmethod
    def try_out(self, experiment: EpochExperiment) -> Iterator[BrokenRelation]:
        """Ask for a child, and look at what it prints."""


class StateRelation(ExperimentRelation):
    """A relation of what has a state that is saved."""

    tried_at = "state"

    @abstractmethod
    def try_out(self, experiment: StateExperiment) -> Iterator[BrokenRelation]:
        """Ask a child what is another one behind a state that is given back."""


class EvaluationRelation(ExperimentRelation):
    """A relation of what an evaluation prints."""

    tried_at = "evaluation"

    @abstractmethod
    def try_out(self, experiment: EvaluationExperiment) -> Iterator[BrokenRelation]:
        """Ask for children, and compare what they print."""

    def told(
        self,
        figures: "tuple[PrintedFigure, PrintedFigure]",
        changed: str,
        severity: Severity,
        more: str = "",
    ) -> BrokenRelation:
        """Return that a figure is another one with a change, with both."""
        before, after = figures
        message = f"the evaluation prints {before.text} (behind {before.before!r}); {changed} it prints {after.text}{more}"
        return BrokenRelation(message, severity, evidence={"expected": before.value, "found": after.value})
