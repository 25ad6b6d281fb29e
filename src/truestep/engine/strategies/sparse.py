# SPDX-License-Identifier: Apache-2.0
"""Gradients of embeddings that hold few rows: the rows of all ranks are gathered, where a dense sum would send the whole table."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from truestep.engine.processes.gathering import gather_all_rows
from truestep.engine.processes.world import World
from truestep.engine.weights import LearnerWeights

_UNUSED = -1


class SparseGradients:
    """The sparse gradients of one set of learners."""

    def __init__(self, learners: Sequence[LearnerWeights], world: World, what: str) -> None:
        self._world, self._what = world, what
        self._owners = [(weights, parameter) for weights in learners for parameter in weights.sparse]

    @torch.no_grad()
    def exchange(self) -> None:
        """Make every gradient the sum over all ranks; one that no rank has stays none."""
        for weights, parameter in self._owners:
            if parameter.requires_grad:
                self._sum(weights, parameter)

    def _sum(self, weights: LearnerWeights, parameter: nn.Parameter) -> None:
        gradient = weights.gradient_so_far(parameter)
        is_dense = gradient is not None and not gradient.is_sparse  # the weight was used elsewhere, too
        rows, values = _rows_of(parameter, gradient)
        count = _UNUSED if gradient is None else len(rows)
        found = self._world.meet(f"{self._what} (rows of an embedding)", count, is_dense)
        if all(each[0] == _UNUSED for each in found):
            return
        counts = [max(int(each[0]), 0) for each in found]
        rows, values = (gather_all_rows(each, self._world, counts) for each in (rows, values))
        total = torch.sparse_coo_tensor(
            rows[None], values, parameter.shape, check_invariants=False
        ).coalesce()
        weights.set_gradient(parameter, total.to_dense() if any(each[1] for each in found) else total)


def _rows_of(parameter: Tensor, gradient: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the numbers of the rows that a gradient has, and the rows."""
    if gradient is None:
        numbers = torch.empty(0, dtype=torch.int64, device=parameter.device)
        return numbers, parameter.new_empty(0, *parameter.shape[1:])
    if not gradient.is_sparse:
        return torch.arange(len(gradient), device=gradient.device), gradient
    gradient = gradient.coalesce()
    return gradient.indices()[0], gradient.values()
