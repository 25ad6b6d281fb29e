# SPDX-License-Identifier: Apache-2.0
"""Mean and variance of channels over any number of batches, merged exactly."""

import torch
from torch import Tensor


class Moments:
    """Count, mean and sum of squared deviations of each channel, in float64.

    Batches are merged by the pairwise update of Chan, Golub and LeVeque (1979), so that neither their sizes nor a mean
    far from 0 cost digits.
    """

    def __init__(self) -> None:
        self.count = 0
        self.mean: Tensor | None = None
        self.squares: Tensor | None = None

    @torch.no_grad()
    def add(self, values: Tensor) -> None:
        """Take in a batch of shape (batch, channels, ...)."""
        count = values.numel() // max(values.shape[1], 1)
        if count == 0:
            return
        # not every device has float64
        values = (values.cpu() if values.device.type == "mps" else values).double().transpose(0, 1).flatten(1)
        mean = values.mean(1)
        squares = (values - mean.unsqueeze(1)).square().sum(1)
        if self.mean is None or self.squares is None:
            self.count, self.mean, self.squares = count, mean, squares
            return
        total = self.count + count
        apart = mean - self.mean
        self.mean = self.mean + apart * (count / total)
        self.squares = self.squares + squares + apart.square() * (self.count * count / total)
        self.count = total

    def variance(self, *, unbiased: bool) -> Tensor:
        """Return the variance, divided by count − 1 if `unbiased`, else by the count."""
        assert self.squares is not None
        return self.squares / (self.count - 1 if unbiased else self.count)
