# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Explainer


class InputHasOtherRank(Explainer):
    """A layer gets an input with too many or too few axes.

    Means: each layer reads inputs of a fixed number of axes, such as (batch, channels, height, width) for Conv2d.

    Raises:
        layer = nn.BatchNorm2d(3)
        layer(torch.zeros(2, 3))

    Works:
        layer = nn.BatchNorm2d(3)
        layer(torch.zeros(2, 3, 4, 4))

    Fix: add the axis that is missing (x.unsqueeze(0) for the batch, x.unsqueeze(1) for one channel), remove the one
    too many with squeeze(axis), or take the layer for this number of axes (1d, 2d, 3d).

    Cases:
        otherwise: {operand} of the product is no {wanted}{and_shapes}.
        otherwise: {layer} wants {wanted}, and got {given}.
    """

    messages = (
        r"Expected (?P<wanted>.*?input) to (?P<who>conv\w+), but got input of size: \[(?P<given>[\d, ]+)\]",
        r"expected (?P<wanted>(?:\dD)(?: or \dD)*) input \(got (?P<given>\d+D) input\)",
        r"Expected (?P<given>\d)-dimensional input for (?P<wanted>\d)-dimensional weight",
        r"Expected (?P<wanted>\d)-dimensional input for \d-dimensional weight .*?, but got (?P<given>\d)-dimensional",
        r"(?P<who>RNN|LSTM|GRU): Expected input to be (?P<wanted>2D or 3D), got (?P<given>\dD)",
        r"\b(?P<operand>self|input|mat1|mat2|mat|vec|batch1|batch2) must be a (?P<wanted>matrix|vector|(?:2|3)D tensor)",
        r"input must have (?P<wanted>\d) dimensions, got (?P<given>\d)",
    )
