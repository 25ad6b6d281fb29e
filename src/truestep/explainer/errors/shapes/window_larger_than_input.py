# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Explainer


class WindowLargerThanInput(Explainer):
    """A convolution or pooling window is larger than what is left of the image.

    Means: each stride and pooling halves the maps; after too many, no window fits any more.

    Raises:
        layer = nn.Conv2d(3, 8, kernel_size=9)
        layer(torch.zeros(2, 3, 4, 4))

    Works:
        layer = nn.Conv2d(3, 8, kernel_size=9)
        layer(torch.zeros(2, 3, 32, 32))

    Fix: feed larger images (Resize), leave out a pooling or a stride, add padding, or end with nn.AdaptiveAvgPool2d(1),
    which takes maps of any size.

    Cases:
        otherwise: {layer} got a map of {map} for {kernel}.
    """

    messages = (
        r"Calculated padded input size per channel: (?P<map>\([^)]*\))\. Kernel size: (?P<kernel>\([^)]*\))",
        r"Given input size: (?P<map>\([^)]*\))\. Calculated output size: (?P<kernel>\([^)]*\))\. Output size is too small",
        r"Padding size should be less than the corresponding input dimension",
        r"Kernel size can't be greater than actual input size",
    )
