# SPDX-License-Identifier: Apache-2.0
"""Starting a backward from values and their seed."""

from collections.abc import Sequence
from functools import cache

from torch import Tensor

from truestep.core.device_specific import current_accelerator_device
from truestep.engine.weights import LearnerWeights
from truestep.instrument import backward_listeners


def backward_of_losses(values: Tensor, seed: Tensor) -> None:
    """Accumulate into `.grad` the gradient of Σ seed·values: `torch.autograd.backward`, without its checks of the arguments.

    Those cost 8 µs, a tenth of the smallest step (docs/log.md), and here the seed is made to fit.
    """
    run = backward_listeners.in_this_thread if _is_without_accelerator() else backward_listeners.on_devices
    # no graph kept, none made of the backward itself, and gradients for all leaves: as `backward()` has it
    run((values,), (seed,), False, False, (), allow_unreachable=True, accumulate_grad=True)


def backward_of_part(learners: Sequence[LearnerWeights], values: Tensor, seed: Tensor) -> None:
    """Go back through a part of the batch; hooks of the learners' parameters wait for the gradient of the whole."""
    # a hook sees one gradient for each update: that of the whole batch, however it is split
    held = [hooks for weights in learners for hooks in weights.hold_hooks()]
    try:
        backward_of_losses(values, seed)
    finally:
        for hooks in held:
            hooks.put_back()


@cache
def _is_without_accelerator() -> bool:
    return current_accelerator_device() is None
