# SPDX-License-Identifier: Apache-2.0
"""A value for each example in a row, and another one in a column."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from truestep.doctor.check import BUG
from truestep.doctor.library.operations import operations
from truestep.doctor.watcher import Observation, Observations, Watcher

if TYPE_CHECKING:
    from torch import Tensor

    from truestep.doctor.runtime.history import WatchHistory
    from truestep.doctor.runtime.origins import WatchedOrigin

_WEIGHED = {"linear", "embedding", "embedding_bag", "bilinear", "addmm", "mm", "matmul"}
_ONE_BY_ONE = operations(numbers="activated computed rectified share log-share logarithm", shape="same")
_ARITHMETIC = {
    "add",
    "sub",
    "mul",
    "div",
    "truediv",
    "radd",
    "rsub",
    "rmul",
    "rdiv",
    "rtruediv",
    "subtract",
    "multiply",
}


class RowMeetsColumn(Watcher):
    """A layer's output of shape (n, 1) meets a value of shape (n,): each example with every other one.

    Why: the two broadcast to (n, n); what is computed from that, a mean say, mixes the examples of a batch.

    Bad:
        bias = nn.Linear(4, 1)
        opt = torch.optim.SGD([*net.parameters(), *bias.parameters()], lr=0.01)
        for x, y in loader:
            opt.zero_grad()
            score = net(x).sum(1) + bias(x)  # here
            (score - y).square().mean().backward()
            opt.step()

    Good:
        bias = nn.Linear(4, 1)
        opt = torch.optim.SGD([*net.parameters(), *bias.parameters()], lr=0.01)
        for x, y in loader:
            opt.zero_grad()
            score = net(x).sum(1) + bias(x).squeeze(1)
            (score - y).square().mean().backward()
            opt.step()

    Fix: squeeze(1) the layer's output, or compute both with the axis of 1. Where all pairs are meant, unsqueeze(1) one of them.
    """

    code = "LOSS055"

    def on_operation(
        self, history: WatchHistory, origin: WatchedOrigin, given: list[Tensor], result: Any
    ) -> Observations:
        """Report a square of a row and of a column that a layer gave as it is."""
        if origin.operation not in _ARITHMETIC or len(given) != 2 or not origin.before:
            return
        row, column = sorted(given, key=lambda each: each.dim())
        shape = tuple(row.shape)
        if len(shape) != 1 or shape[0] < 2 or tuple(column.shape) != (*shape, 1):
            return
        if not row.requires_grad or row.is_leaf:  # targets are LOSS017; a parameter has that length by chance
            return
        made = history.origins.of(column)
        while made is not None and made.operation in _ONE_BY_ONE and len(made.before) == 1:
            made = made.before[0]
        if made is not None and made.operation in _WEIGHED:
            text = f"{shape} meets {(*shape, 1)}, the result of {made.operation}: all pairs of examples, {shape * 2}."
            yield Observation(origin.place, text, BUG, {"shapes": [shape, (*shape, 1)]})
