# SPDX-License-Identifier: Apache-2.0
"""One trunk with two heads."""

from torch import nn

from truestep.recipes import digits


class DigitHeads(nn.Module):
    """Images (batch, 1, 8, 8) to features by `trunk`; those to scores of ten digits by `label`, to images by `image`."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.trunk = nn.Sequential(*digits.digits_convolution(1, 16))
        self.label = digit_head(width, layers, nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16 * width, 10))
        self.image = digit_head(width, layers, nn.Conv2d(width, 1, kernel_size=3, padding=1))


def digit_head(width: int, layers: int, *last: nn.Module) -> nn.Sequential:
    """Return convolutions on the trunk's features."""
    inner = (layer for _ in range(layers - 1) for layer in digits.digits_convolution(width, width))
    return nn.Sequential(*digits.digits_convolution(16, width), *inner, *last)
