# SPDX-License-Identifier: Apache-2.0
"""Gradients that a step was made with: nobody needs them until the next update, unless somebody writes to them."""

from collections.abc import Sequence

from torch import Tensor, nn

LOOKED_AT = 3  # of the parameters


class SpentGradients:
    """Knows whether a learner's gradients are those of its last step, and what their norm was once they are let go of."""

    def __init__(self, stepped: Sequence[nn.Parameter]) -> None:
        self.looked_at = stepped[:: max(1, len(stepped) // LOOKED_AT)]
        self.seen: list[tuple[int, int] | None] = []
        """What `engine/step.py` saw of them behind the last step, or where it was refused."""
        self.norm: tuple[int, Tensor] | None = None
        """Their norm, behind the number of the update that they were of."""

    @property
    def are_there(self) -> bool:
        """Whether there are gradients that a step was made with, and no backward by hand has made others since."""
        there = [
            None if (gradient := stepped.grad) is None else (id(gradient), gradient._version)
            for stepped in self.looked_at
        ]
        return any(self.seen) and self.seen == there
