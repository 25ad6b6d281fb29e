# SPDX-License-Identifier: Apache-2.0
"""Slopes of the loss, measured by children that move a block of parameters, beside what the gradient says."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from truestep.doctor.experiments.autocast_off import HALF_PRECISION
from truestep.doctor.experiments.batch_changes import Change
from truestep.doctor.experiments.parameter_perturbation import BlockMove, block_moves, dot_product
from truestep.doctor.experiments.skip_reasons import ExperimentNotTriedError
from truestep.doctor.finding import Place
from truestep.doctor.runtime.user_code_line import path_in_finding

if TYPE_CHECKING:
    from truestep.doctor.experiments.step_experiment import StepExperiment

_LARGEST_STEP = 0.005  # of the weights' size
_AIMED_CHANGE = 0.003  # of the loss
_SMALLEST_CHANGE = 300  # roundings of the loss, below which a step shows nothing
_MOST_APART_AT_ONCE, _MOST_APART = 0.1, 0.25  # of two slopes; a step to one side bends more
_SMALLER = 0.2  # the step with which it is tried again
_AGREED = 0.2  # of the two steps
_LEFT_OVER = 1e-3
CUT_IN_WRITING = (
    "detach(), no_grad(), a straight-through estimator, a copy or a number that a term is multiplied by cuts the graph here, "
    "which is taken to be meant"
)


@dataclass(frozen=True)
class GraphCut:
    """An operation that ends a graph."""

    operation: str
    place: Place

    @property
    def told(self) -> str:
        """The operation with its line."""
        return f"{self.operation} at {path_in_finding(self.place.path)}:{self.place.line}"


def in_full_precision(experiment: "StepExperiment") -> "StepExperiment":
    """Return an experiment with autocast off in all children, where it hides what a small step changes."""
    if experiment.base.coarsest <= HALF_PRECISION or experiment.plan.in_full_precision:
        return experiment
    return replace(experiment, plan=replace(experiment.plan, in_full_precision=True), moves={}, _known={})


def demand_comparable_slopes(experiment: "StepExperiment") -> None:
    """Make sure that the gradient is that of the loss alone, so that slopes can be compared with it.

    Raises:
        ExperimentNotTriedError: it is not.
    """
    base = experiment.base
    assert experiment.tolerance
    if base.coarsest > HALF_PRECISION:
        raise ExperimentNotTriedError(
            "the loss computes in half precision, which hides what a small step changes"
        )
    if any(each.reads_model for each in base.steps):
        raise ExperimentNotTriedError(
            "numbers of the model are read on the way to the loss, and the batch may depend on them"
        )
    if any(each.shares_losses and len(each.losses) > 1 for each in base.steps):
        raise ExperimentNotTriedError(
            "several losses go backward before several optimizers step, so it is not known which is whose"
        )
    if base.own_backward is not None:
        raise ExperimentNotTriedError(f"the gradient goes through {base.own_backward}")
    if all(each._backward_hooks for each in experiment.plan.parameters.values()):
        raise ExperimentNotTriedError("hooks change all gradients, so they need be no slopes of the loss")
    if experiment.compare_step_by_step(Change(cleared=True)).difference > max(
        experiment.tolerance, _LEFT_OVER
    ):
        raise ExperimentNotTriedError("gradients that were there before the batch are part of its step")


def moves_with_wrong_slope(experiment: "StepExperiment") -> Iterator[tuple[BlockMove, float]]:
    """Yield the moves along which the loss has another slope than its gradient says, each with that slope.

    Raises:
        ExperimentNotTriedError: a cut is written as one and nothing else is found, or a slope can't be measured anywhere.
    """
    measured_any, is_cut_in_writing, why = False, False, "the gradients are too small to measure slopes"
    for move in block_moves(experiment):
        try:
            measured = _slope_if_wrong(experiment, move)
        except ExperimentNotTriedError as error:
            why = str(error)
            continue
        measured_any = True
        if measured is not None:
            if _is_cut_on_purpose(experiment, move, measured) or _is_right_with_constants(experiment, move):
                is_cut_in_writing = True
            else:
                yield move, measured
    if is_cut_in_writing:
        raise ExperimentNotTriedError(CUT_IN_WRITING)
    if not measured_any:
        raise ExperimentNotTriedError(why)


def graph_cuts(experiment: "StepExperiment") -> list[GraphCut]:
    """Return where graphs end by other means than detach() and no_grad()."""
    found = []
    opened = Change(opens_cuts=True, at=experiment.base.steps[0].first_call)
    for each in experiment.child(opened).cuts:
        operation, _, line = each.rpartition(" ")
        if (place := Place.of_text(line)) is not None:
            found.append(GraphCut(operation, place))
    return found


def _slope_if_wrong(experiment: "StepExperiment", move: BlockMove) -> float | None:
    """Return the measured slope where it is another one than the gradient says, None where it is the same."""
    base = _loss_after_move(experiment, move, 0.0)
    step = _step_size(experiment, move)
    least = _SMALLEST_CHANGE * experiment.base.coarsest * abs(base)
    forward = _loss_after_move(experiment, move, step)
    if max(step * move.gradient_size, abs(forward - base) / 3) < least:
        raise ExperimentNotTriedError("the gradients are too small to measure slopes")
    if _is_near_said_slope((forward - base) / step, move, _MOST_APART_AT_ONCE):
        return None
    measured = (forward - _loss_after_move(experiment, move, -step)) / (2 * step)
    if _is_near_said_slope(measured, move, _MOST_APART):
        return None
    smaller = _SMALLER * step
    again = (_loss_after_move(experiment, move, smaller) - _loss_after_move(experiment, move, -smaller)) / (
        2 * smaller
    )
    if not abs(measured - again) <= _AGREED * max(abs(measured), abs(again)):
        raise ExperimentNotTriedError("the loss has a kink here: two sizes of a step disagree")
    return measured


def _is_near_said_slope(measured: float, move: BlockMove, share: float) -> bool:
    return abs(measured - move.said) <= share * max(abs(measured), abs(move.said), 0.1 * move.gradient_size)


def _step_size(experiment: "StepExperiment", move: BlockMove) -> float:
    base = _loss_after_move(experiment, move, 0.0)
    return min(_LARGEST_STEP * move.weights_size, _AIMED_CHANGE * (abs(base) + 0.01) / move.gradient_size)


def _is_right_with_constants(experiment: "StepExperiment", move: BlockMove) -> bool:
    """Tell whether the gradient is the slope where factors of plain numbers, and copies of parameters, stay as they are."""
    step = _step_size(experiment, move)
    losses = [_loss_after_move(experiment, move, by, holds_constants=True) for by in (step, -step)]
    measured = (losses[0] - losses[1]) / (2 * step)
    return _is_near_said_slope(measured, move, _MOST_APART) or _is_cut_on_purpose(experiment, move, measured)


def _loss_after_move(
    experiment: "StepExperiment", move: BlockMove, by: float, *, holds_constants: bool = False
) -> float:
    if by:
        key = f"{move.step} {move.name}"
        experiment.moves[key] = move.directions
        at = experiment.base.steps[move.step].first_call
        found = experiment.changed(Change(moved=key, by=by, at=at, holds_constants=holds_constants))
    else:
        found = experiment.base
    return sum(found.steps[move.step].losses)


def _is_cut_on_purpose(experiment: "StepExperiment", move: BlockMove, measured: float) -> bool:
    """Tell whether the gradient is the slope where detach() and its kin leave the graph whole, or they can't be left out."""
    opened = Change(opens_cuts=True, at=experiment.base.steps[move.step].first_call)
    if experiment.goes_another_way(opened):
        return True
    if experiment.child(opened).scores_samples:
        raise ExperimentNotTriedError(
            "samples are scored by log_prob(): its gradient is that of an expectation"
        )
    said = dot_product(experiment.child(opened).steps[move.step].gradients, move.directions)
    return abs(measured - said) <= _MOST_APART * max(abs(measured), abs(said))
