# SPDX-License-Identifier: Apache-2.0
"""Whether all gradients and losses are finite, at a fraction of what their norm costs."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from truestep.core.accelerator import is_host
from truestep.engine.precision.loss_scale import gradients_by_dtype


class FiniteGradientCheck:
    """One pass over the gradients: the check of float16 gradients, with a scale of one, which changes no bit."""

    def __init__(self, device: torch.device, weights: Sequence[Tensor]) -> None:
        self._one = torch.ones((), dtype=torch.float32, device=device)
        self._found = torch.zeros((), dtype=torch.float32, device=device)
        flag: Any = self._found.numpy() if is_host(device) else None
        self._seen = None if flag is None else memoryview(flag)
        """The flag in the memory of the host, where reading it is no call of torch."""
        self._is_one_kind = {weight.dtype for weight in weights} == {torch.float32}

    def __call__(self, tensors: list[Tensor]) -> Tensor | float:
        """Return infinity if an entry is not finite, else 0; on an accelerator as a tensor that nobody waits for."""
        # On an accelerator nobody knows whether the last one was set, so each check begins with a new one.
        seen = self._seen
        found = torch.zeros_like(self._found) if seen is None else self._found
        if self._is_one_kind:
            torch._amp_foreach_non_finite_check_and_unscale_(tensors, found, self._one)
        else:
            for same_kind in gradients_by_dtype(tensors):
                torch._amp_foreach_non_finite_check_and_unscale_(same_kind, found, self._one)
        if seen is None:
            # 0 stays 0 and 1 becomes infinity, without asking the device which it is
            return found / (1 - found)
        if not seen[()]:
            return 0.0
        found.zero_()
        return math.inf
