# SPDX-License-Identifier: Apache-2.0
"""Blocks of parameters that a child moves a little, and what the gradient says of that."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from truestep.doctor.experiments.outcome import sampled_numbers
from truestep.doctor.relations.gradients import parameters_by_block

if TYPE_CHECKING:
    from truestep.doctor.experiments.step_experiment import StepExperiment

_MOST_BLOCKS = 4  # of each optimizer
_LEAST_DIRECTION = 0.3  # of gradient and weights together: where they are opposed, little is left


@dataclass(frozen=True)
class BlockMove:
    """A direction in which a block of parameters is moved.

    Attributes:
        name: of the block.
        step: which of the steps it is for.
        directions: by parameter, of length 1 together; of a large parameter some of its numbers alone.
        said: the slope of the loss, by the gradient.
        gradient_size: the gradient's norm in these numbers.
        weights_size: their own norm.
    """

    name: str
    step: int
    directions: Mapping[str, Tensor]
    said: float
    gradient_size: float
    weights_size: float


def block_moves(experiment: "StepExperiment") -> Iterator[BlockMove]:
    """Yield directions along gradient and weights together, for what is cut off may lie across the gradient."""
    for number, step in enumerate(experiment.base.steps):
        given = {
            name: each
            for name, each in experiment.own_gradients(step, hooked=False).items()
            if each is not None
        }
        sizes = {name: float(each.norm()) for name, each in given.items()}
        blocks = parameters_by_block([name for name, size in sizes.items() if size > 0])
        largest = sorted(blocks, key=lambda block: -math.hypot(*(sizes[name] for name in blocks[block])))
        for block in largest[:_MOST_BLOCKS]:
            yield _block_move(experiment, block, number, {name: given[name] for name in blocks[block]})


def _block_move(
    experiment: "StepExperiment", block: str, step: int, gradients: Mapping[str, Tensor]
) -> BlockMove:
    known = experiment.plan.parameters
    slopes = {name: each.double() for name, each in gradients.items()}
    weights = {name: sampled_numbers(known[name], len(known)).double() for name in gradients}
    size, weights_size = _vector_norm(slopes), _vector_norm(weights)
    along = {
        name: each / size + (weights[name] / weights_size if weights_size else 0.0)
        for name, each in slopes.items()
    }
    if _vector_norm(along) < _LEAST_DIRECTION:
        along = slopes
    length = _vector_norm(along)
    directions = {name: each / length for name, each in along.items()}
    return BlockMove(block, step, directions, dot_product(slopes, directions), size, max(1e-3, weights_size))


def dot_product(gradients: Mapping[str, Tensor | None], directions: Mapping[str, Tensor]) -> float:
    """Return the slope that a gradient gives along directions."""
    return sum(
        float((given.double() * each).sum())
        for name, each in directions.items()
        if (given := gradients.get(name)) is not None
    )


def _vector_norm(parts: Mapping[str, Tensor]) -> float:
    return math.sqrt(sum(float(each.square().sum()) for each in parts.values()))
