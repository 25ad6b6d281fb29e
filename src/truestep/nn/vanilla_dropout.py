# SPDX-License-Identifier: Apache-2.0
"""Dropout as it was first published: kept numbers pass unchanged in training, all are scaled down in evaluation."""

import torch
from torch import Tensor, nn

from truestep.core.errors import OptionError


class VanillaDropout(nn.Module):
    """Drop numbers with probability p in training and multiply all by 1 − p in evaluation (Srivastava et al. 2014).

    torch's `nn.Dropout` is the inverted kind: it divides by 1 − p in training and does nothing in evaluation, which is
    what a new model should use. Both have the same expectation in training as in evaluation; they differ by the factor 1 − p,
    which the next layer's weights take up. This one is for papers and weights that were made with it.

    Args:
        p: the rate at which numbers are DROPPED, from 0 up to but not including 1; `keep_prob` elsewhere is 1 − p.

    Raises:
        OptionError: a rate outside that range.
    """

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        if isinstance(p, bool) or not isinstance(p, int | float) or not 0 <= p < 1:
            raise OptionError(
                f"p={p!r}: p is the rate at which numbers are DROPPED, at least 0 and less than 1 (nothing would be left). "
                "Where 80 % are kept, p=0.2."
            )
        self.p = float(p)

    def forward(self, values: Tensor) -> Tensor:
        """Return the numbers that were kept, zeros elsewhere; in evaluation all of them, times 1 − p."""
        if not self.training:
            return values * (1 - self.p)
        kept = torch.empty(values.shape, dtype=torch.bool, device=values.device).bernoulli_(1 - self.p)
        return values * kept

    def extra_repr(self) -> str:
        """Show the rate both ways."""
        return f"p={self.p:g}, drops {100 * self.p:g}%, keeps {100 * (1 - self.p):g}%"
