# SPDX-License-Identifier: Apache-2.0
"""Relations of the gradient with the loss itself: what a small step along it really gives."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from truestep.doctor.relations.trials.cuts import cuts_of
from truestep.doctor.relations.trials.trial import Trials
from truestep.doctor.relations.verdict import Verdict

_MOST_BLOCKS = 6
_LARGEST_STEP = 0.005  # of the weights' size
_AIMED_CHANGE = 0.003  # of the loss
_MOST_APART = 0.25  # of the two slopes
_SMALLER = 0.2  # the step with which it is tried again
_AGREED = 0.2  # of the two steps
_SMALLEST_CHANGE = 300  # roundings of the loss, below which a step shows nothing
_COARSE = "the loss computes in half precision, which hides what a small step changes"


def slopes(trials: Trials) -> Iterator[Verdict]:
    """A step along each block's gradient changes the loss as the gradient says."""
    if trials.is_coarse:
        yield Verdict("slope", "not tried", _COARSE)
        return
    for block, names in blocks(trials).items():
        yield _slope(trials, block, names)


def blocks(trials: Trials) -> dict[str, list[str]]:
    """Return the parameters with a gradient, block by block: by as much of their names as tells two blocks apart."""
    gradients = trials.whole.gradients
    names = [name for name, each in gradients.items() if each is not None and bool(each.to_dense().any())]
    found: dict[str, list[str]] = {}
    for depth in range(1, 5):
        found = {}
        for name in names:
            found.setdefault(".".join(name.split(".")[:depth]), []).append(name)
        if len(found) > 1:
            break
    return dict(list(found.items())[:_MOST_BLOCKS])


def _slope(trials: Trials, block: str, names: list[str]) -> Verdict:
    relation, whole = f"slope: {block}", trials.whole
    gradients = {name: each for name in names if (each := whole.gradients[name]) is not None}
    size = math.sqrt(sum(float(each.to_dense().abs().double().square().sum()) for each in gradients.values()))
    directions = {name: each.to_dense() / size for name, each in gradients.items()}
    step = min(_LARGEST_STEP * weights_size(trials, names), _AIMED_CHANGE * (abs(whole.value) + 0.01) / size)
    least = _SMALLEST_CHANGE * trials.rounding * abs(whole.value)
    if 2 * step * size < least:
        return Verdict(relation, "not tried", "its gradient is too small to measure")
    measured = _measured(trials, directions, step)
    numbers = {"expected": measured, "found": size, "unit": "slope of the loss along the gradient"}
    if abs(measured - size) <= _MOST_APART * max(abs(measured), size):
        return Verdict(relation, "held", **numbers)  # type: ignore[arg-type]
    again = _measured(trials, directions, _SMALLER * step)
    if abs(measured) < least / (2 * step) and abs(again) < least / (2 * _SMALLER * step):
        why = (
            "the loss does not move although the gradient says so. That is right for what rounds or picks and passes the gradient "
            "through (a straight-through estimator, as of a codebook)"
        )
        return Verdict(relation, "question", why, **numbers)  # type: ignore[arg-type]
    if not abs(measured - again) <= _AGREED * max(abs(measured), abs(again)):
        return Verdict(relation, "not tried", "the loss has a kink here: two sizes of a step disagree")
    why = (
        "the gradient is not the slope of the loss: a part of the graph is cut off. Leave out detach(), no_grad(), .data, "
        ".item() and numpy() on the way to the loss, unless the cut is meant"
    )
    return Verdict(relation, "broken", why, place=cuts_of(trials), **numbers)  # type: ignore[arg-type]


def _measured(trials: Trials, directions: dict[str, Tensor], step: float) -> float:
    """Return the slope of the loss along a direction, by a step to both sides."""
    values = []
    for sign in (1, -1):
        with trials.moved({name: sign * step * each for name, each in directions.items()}):
            values.append(trials.value(trials.examples.fresh(), trials.examples.count))
    return (values[0] - values[1]) / (2 * step)


def weights_size(trials: Trials, names: list[str]) -> float:
    """Return the norm of these weights together, at least a small number."""
    with torch.no_grad():
        squares = [float(trials.trained.parameters[name].abs().double().square().sum()) for name in names]
    return max(1e-3, math.sqrt(sum(squares)))
