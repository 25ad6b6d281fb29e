# SPDX-License-Identifier: Apache-2.0
"""Classes on the axis where time is expected."""

from __future__ import annotations

from typing import TYPE_CHECKING

from truestep.doctor.runtime.history import LossCall
from truestep.doctor.watcher_base import Observation, Observations, Watcher

if TYPE_CHECKING:
    from torch import Tensor

    from truestep.doctor.runtime.history import WatchHistory

_LINEAR = ("AddmmBackward", "MmBackward", "LinearBackward", "BmmBackward")
_RESHAPES = ("ViewBackward", "UnsafeViewBackward", "ReshapeAliasBackward", "AddBackward", "CloneBackward")


class ClassAxisLast(Watcher):
    """Cross entropy gets (batch, time, classes), with as many steps as classes.

    Why: it takes the classes on axis 1. Where the sizes happen to be equal nothing raises, and the
    softmax runs over time.

    Bad:
        tagger = nn.Linear(4, 3)
        scores = tagger(torch.randn(8, 3, 4))
        loss = F.cross_entropy(scores, torch.randint(3, (8, 3)))  # here

    Good:
        tagger = nn.Linear(4, 3)
        scores = tagger(torch.randn(8, 3, 4))
        loss = F.cross_entropy(scores.transpose(1, 2), torch.randint(3, (8, 3)))

    Fix: scores.transpose(1, 2), or scores.flatten(0, 1) with targets.flatten().

    Evidence: the plain form of row 41 of docs/mistakes.md.
    """

    code = "LOSS024"

    def on_loss(self, history: WatchHistory, loss: LossCall) -> Observations:
        """Report square outputs that come straight from a linear layer, whose features are last."""
        shape = tuple(loss.input.shape)
        if loss.name in ("cross_entropy", "nll_loss") and len(shape) == 3 and shape[1] == shape[2]:
            if loss.target.dim() == 2 and _is_output_of_linear(loss.input):
                text = f"Of {shape}, the last axis holds the classes; cross entropy takes axis 1."
                yield Observation(
                    loss.place, text, evidence={"scores": shape, "targets": tuple(loss.target.shape)}
                )


def _is_output_of_linear(tensor: Tensor) -> bool:
    node = tensor.grad_fn
    for _ in range(4):
        name = node.name().rstrip("0123456789") if node is not None else ""
        if name in _LINEAR:
            return True
        if node is None or name not in _RESHAPES or not node.next_functions:
            return False
        node = node.next_functions[0][0]
    return False
