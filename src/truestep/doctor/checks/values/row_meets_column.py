# SPDX-License-Identifier: Apache-2.0
"""A row and a column that were to be added example by example."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from truestep.doctor.check import RISK
from truestep.doctor.finding import Place
from truestep.doctor.watcher import Observation, Observations, Watcher

if TYPE_CHECKING:
    from torch import Tensor

    from truestep.doctor.runtime.history import WatchHistory
    from truestep.doctor.runtime.origins import WatchedOrigin

STEPS = 3  # so many show the same
_OUTER = frozenset({"add", "mul", "div"})  # a difference of a prediction and a target is LOSS017's
_LAYERS = frozenset(
    {"linear", "embedding", "bilinear", "embedding_bag"}
)  # they give (batch, 1) by themselves


class RowMeetsColumn(Watcher):
    """A layer's output of shape (batch, 1) is added to a value of shape (batch,), or multiplied with it: all pairs come out.

    Why: every example's value meets those of all others. The loss then goes over all pairs, and hardly falls.

    Bad:
        weights, bias = nn.Linear(4, 4), nn.Linear(4, 1)
        for x, y in loader:
            score = weights(x).sum(1) + bias(x)  # here
            score.mean().backward()

    Good:
        weights, bias = nn.Linear(4, 4), nn.Linear(4, 1)
        for x, y in loader:
            score = weights(x).sum(1) + bias(x).squeeze(1)
            score.mean().backward()

    Fix: squeeze(1) what a layer with one output gives; where all pairs are meant, write the axes out: a[:, None] + b.
    """

    code = "VALUE026"

    def __init__(self) -> None:
        self.seen: dict[Place, int] = {}

    def on_operation(
        self, history: WatchHistory, origin: WatchedOrigin, given: list[Tensor], result: Any
    ) -> Observations:
        """Report a square of a row and of a column that a layer gave as it is."""
        if origin.operation not in _OUTER or len(given) != 2 or not result.requires_grad:
            return
        row, column = sorted(given, key=lambda each: each.dim())
        size = len(row) if row.dim() == 1 else 0
        if size < 2 or tuple(column.shape) != (size, 1):
            return
        made = history.origins.of(column)
        if made is None or made.operation not in _LAYERS or not row.requires_grad or row.is_leaf:
            return
        self.seen[origin.place] = self.seen.get(origin.place, 0) + 1
        if self.seen[origin.place] == STEPS:
            shapes = {"row": [size], "column": [size, 1], "result": list(result.shape)}
            text = f"({size}, 1) of {history.told(made, origin.place)} meets ({size},): the result is {tuple(result.shape)}."
            yield Observation(origin.place, text, RISK, shapes)
