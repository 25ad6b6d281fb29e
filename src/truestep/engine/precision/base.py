# SPDX-License-Identifier: Apache-2.0
"""What a mode of precision is: where weights, computation and the optimizer's copy live."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch


@dataclass(frozen=True, kw_only=True)
class Precision:
    """A mode of precision.

    Attributes:
        name: what a user writes.
        meaning: one line for the docs and for `run.choices()`.
        weights: the type that floating-point parameters are kept in.
        autocast: the type that autocast computes in, None without autocast.
        float32_norms: whether normalisation layers stay in float32 beside half-precision weights.
        master_weights: whether the optimizer works on float32 copies of half-precision weights.
        loss_scaling: whether gradients are kept from underflowing by a loss scale.
    """

    name: str
    meaning: str
    weights: torch.dtype = torch.float32
    autocast: torch.dtype | None = None
    float32_norms: bool = False
    master_weights: bool = False
    loss_scaling: bool = False

    @property
    def loses_small_updates(self) -> bool:
        """Whether the weights themselves are kept in 16 bits, with no copy in more: an update much smaller than one is lost."""
        return self.weights in (torch.float16, torch.bfloat16) and not self.master_weights

    def autocast_context(self, device: torch.device) -> AbstractContextManager[object]:
        """Return the context in which a whole loss is computed, so that the loss itself is autocast too."""
        if self.autocast is None:
            return nullcontext()
        return torch.autocast(device.type, self.autocast)
