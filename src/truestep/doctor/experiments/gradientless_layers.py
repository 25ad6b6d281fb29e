# SPDX-License-Identifier: Apache-2.0
"""Layers that an optimizer holds and that get no gradient in its step: children move each, and tell the loss."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from truestep.doctor.experiments.autocast_off import HALF_PRECISION
from truestep.doctor.experiments.batch_changes import Change
from truestep.doctor.experiments.outcome import sampled_numbers
from truestep.doctor.experiments.skip_reasons import ExperimentNotTriedError

if TYPE_CHECKING:
    from truestep.doctor.experiments.step_experiment import StepExperiment

_SHARE, _SMALLER = 0.01, 0.2  # of the weights' size; of that step
_LEAST_MOVE = 1e-4  # of the loss
_MOST_STEEPER = 2.5
_ROUNDINGS = 1000
_MOST_LAYERS = 3
_SEED = 5


def loss_changes_without_gradient(experiment: "StepExperiment") -> Iterator[tuple[str, float]]:
    """Yield the layers without a gradient that change the loss, each with the change, as a share.

    Raises:
        ExperimentNotTriedError: it can't be told what a move changes.
    """
    base = experiment.base
    if base.coarsest > HALF_PRECISION or any(each.reads_model for each in base.steps):
        raise ExperimentNotTriedError("a small change of weights can't be followed to the loss here")
    found = [
        (number, names)
        for number in range(len(base.steps))
        for names in _layers_without_gradient(experiment, number).values()
    ]
    for number, names in found[:_MOST_LAYERS]:
        moved = _loss_change(experiment, number, names)
        if moved > max(_LEAST_MOVE, _ROUNDINGS * base.coarsest):
            yield names[0].rpartition(".")[0] or names[0], moved


def has_step_without_gradients(experiment: "StepExperiment") -> bool:
    """Tell the steps of a single optimizer of whose parameters none gets a gradient, not even zeros."""
    given = experiment.base.gradients().values()
    return len(experiment.plan.optimizers) == 1 and all(each is None for each in given)


def _layers_without_gradient(experiment: "StepExperiment", number: int) -> Mapping[str, Sequence[str]]:
    """Return the layers of a step's optimizer none of whose parameters got a gradient, or ever had one."""
    parameters = experiment.plan.parameters
    given = experiment.own_gradients(experiment.base.steps[number])
    trained = Counter(parameters[name].shape for name, each in given.items() if each is not None)
    if not trained and not has_step_without_gradients(experiment):  # it is another optimizer's turn
        return {}
    still, layers = {}, dict[str, list[str]]()
    for name in given:
        layers.setdefault(name.rpartition(".")[0] or name, []).append(name)
    for layer, names in layers.items():
        has_none = all(
            given[name] is None and parameters[name].grad is None and parameters[name].requires_grad
            for name in names
        )
        # a teacher or a target has the shapes of what it is a copy of
        is_copy = all(trained[parameters[name].shape] for name in names)
        if has_none and not is_copy and not any(name in experiment.base.overwritten for name in names):
            still[layer] = names
    return still


def _loss_change(experiment: "StepExperiment", number: int, names: Sequence[str]) -> float:
    """Return how much the loss moves, as a share, the least of two steps taken for one size; 0 for what jumps."""
    drawn = torch.Generator().manual_seed(_SEED)
    numbers = len(experiment.plan.parameters)
    directions: dict[str, Tensor] = {}
    for name in names:
        weights = sampled_numbers(experiment.plan.parameters[name], numbers)
        noise = torch.randn(weights.shape, generator=drawn, dtype=torch.float32).to(weights)
        directions[name] = noise * max(float(weights.norm()), 0.1) / max(float(noise.norm()), 1e-6)
    key = f"still {number} {names[0]}"
    experiment.moves[key] = directions
    base, moves = sum(experiment.base.steps[number].losses), []
    for factor in (1.0, _SMALLER):
        at = experiment.base.steps[number].first_call
        found = experiment.changed(Change(moved=key, by=factor * _SHARE, at=at))
        moves.append(abs(sum(found.steps[number].losses) - base) / (abs(base) or 1.0) / factor)
    return 0.0 if moves[1] > _MOST_STEEPER * moves[0] else min(moves)
