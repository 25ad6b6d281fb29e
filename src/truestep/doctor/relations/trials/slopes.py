# SPDX-License-Identifier: Apache-2.0
"""Relations of the gradient with the loss itself: what a small step along it really gives."""

import math
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from truestep.doctor.relations.gradients import parameters_by_block
from truestep.doctor.relations.trials.cuts import find_graph_cuts
from truestep.doctor.relations.trials.trial import Trials
from truestep.doctor.relations.verdict import Verdict

_MOST_BLOCKS = 6
_LARGEST_STEP = 0.005  # of the weights' size
_AIMED_CHANGE = 0.003  # of the loss
_MOST_APART = 0.25  # of the two slopes
_SMALLER = 0.2  # the step with which it is tried again
_AGREED = 0.2  # of the two steps
_SMALLEST_CHANGE = 300  # roundings of the loss, below which a step shows nothing
_LEAST_COSINE = 0.1  # of a direction with the gradient: across it slopes are small and rounding is not
_PASSED_THROUGH = (
    "the loss does not move although the gradient says so. That is right for what rounds or picks and passes the gradient "
    "through (a straight-through estimator, as of a codebook)"
)
CUT_BY_MEANING = (
    "a part of the graph is cut off whose values reach the loss with their gradient besides. That is right for targets, weights "
    "and codes, as in focal losses, self-distillation and codebooks"
)
_CUT = (
    "the gradient is not the slope of the loss: a part of the graph is cut off. Leave out detach(), no_grad(), .data, .item() and "
    "numpy() on the way to the loss, unless the cut is meant"
)
_COARSE = "the loss computes in half precision, which hides what a small step changes"


def slope_verdicts(trials: Trials) -> Iterator[Verdict]:
    """A step along each block's gradient changes the loss as the gradient says."""
    if trials.is_coarse:
        yield Verdict("slope", "not tried", _COARSE)
        return
    for block, names in parameter_blocks(trials).items():
        yield _slope_verdict(trials, block, names)


def parameter_blocks(trials: Trials) -> dict[str, list[str]]:
    """Return the parameters with a gradient, block by block: by as much of their names as tells two blocks apart."""
    gradients = trials.whole.gradients
    names = [name for name, each in gradients.items() if each is not None and bool(each.to_dense().any())]
    return dict(list(parameters_by_block(names).items())[:_MOST_BLOCKS])


def _slope_verdict(trials: Trials, block: str, names: list[str]) -> Verdict:
    """Say whether the slope is the gradient's: along the gradient itself, then along gradient and weights together."""
    gradients = {
        name: each.to_dense() for name in names if (each := trials.whole.gradients[name]) is not None
    }
    along = _unit_direction(gradients)
    first = _verdict_along_direction(trials, f"slope: {block}", gradients, along)
    if first.outcome != "held":
        return first
    weights = _unit_direction({name: trials.trained.parameters[name].detach() for name in names})
    # what is cut off may lie across the gradient: the norm of weights does
    both = _unit_direction({name: along[name] + weights[name] for name in names})
    second = _verdict_along_direction(trials, first.relation, gradients, both)
    return second if second.outcome in ("broken", "question") else first


def _verdict_along_direction(
    trials: Trials, relation: str, gradients: dict[str, Tensor], direction: dict[str, Tensor]
) -> Verdict:
    """Compare the slope of the loss along a direction with what the gradient says of it."""
    whole = trials.whole
    said = sum(_dot_product(each, direction[name]) for name, each in gradients.items())
    size = math.sqrt(sum(_dot_product(each, each) for each in gradients.values()))
    step = min(
        _LARGEST_STEP * weights_norm(trials, list(gradients)),
        _AIMED_CHANGE * (abs(whole.value) + 0.01) / size,
    )
    least = _SMALLEST_CHANGE * trials.rounding * abs(whole.value)
    if 2 * step * size < least:
        return Verdict(relation, "not tried", "its gradient is too small to measure")
    measured = _measured_slope(trials, direction, step)
    unit = "slope of the loss, by the gradient"
    verdict = Verdict(relation, "held", expected=measured, found=said, unit=unit)
    if abs(measured - said) <= _MOST_APART * max(abs(measured), abs(said), size * _LEAST_COSINE):
        return verdict
    again = _measured_slope(trials, direction, _SMALLER * step)
    if abs(measured) < least / (2 * step) and abs(again) < least / (2 * _SMALLER * step):
        return replace(verdict, outcome="question", why=_PASSED_THROUGH)
    if not abs(measured - again) <= _AGREED * max(abs(measured), abs(again)):
        return Verdict(relation, "not tried", "the loss has a kink here: two sizes of a step disagree")
    cuts = find_graph_cuts(trials)
    if cuts.is_meant:
        return replace(verdict, outcome="question", why=CUT_BY_MEANING, place=cuts.place)
    return replace(verdict, outcome="broken", why=_CUT, place=cuts.place)


def _unit_direction(direction: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return a direction of length 1."""
    size = math.sqrt(sum(_dot_product(each, each) for each in direction.values())) or 1.0
    return {name: each / size for name, each in direction.items()}


def _dot_product(first: Tensor, second: Tensor) -> float:
    parts = [torch.view_as_real(each) if each.is_complex() else each for each in (first, second)]
    return float((parts[0].double() * parts[1].double()).sum())


def _measured_slope(trials: Trials, directions: dict[str, Tensor], step: float) -> float:
    """Return the slope of the loss along a direction, by a step to both sides."""
    values = []
    for sign in (1, -1):
        with trials.moved({name: sign * step * each for name, each in directions.items()}):
            values.append(trials.value(trials.examples.fresh(), trials.examples.count))
    return (values[0] - values[1]) / (2 * step)


def weights_norm(trials: Trials, names: list[str]) -> float:
    """Return the norm of these weights together, at least a small number."""
    with torch.no_grad():
        squares = [float(trials.trained.parameters[name].abs().double().square().sum()) for name in names]
    return max(1e-3, math.sqrt(sum(squares)))
