# SPDX-License-Identifier: Apache-2.0
"""The backward of a part of a batch."""

from collections.abc import Sequence

from torch import Tensor

from truestep.engine.weights import LearnerWeights
from truestep.instrument import backwards


def backward_of_part(learners: Sequence[LearnerWeights], values: Tensor, seed: Tensor) -> None:
    """Go back through a part of the batch; hooks of the learners' parameters wait for the gradient of the whole."""
    # a hook sees one gradient for each update: that of the whole batch, however it is split
    held = [hooks for weights in learners for hooks in weights.hold_hooks()]
    try:
        backwards.backward_of_losses(values, seed)
    finally:
        for hooks in held:
            hooks.put_back()
