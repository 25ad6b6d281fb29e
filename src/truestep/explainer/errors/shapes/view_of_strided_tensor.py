# SPDX-License-Identifier: Apache-2.0
from typing import Any

from truestep.explainer.explainer import Explainer


class ViewOfStridedTensor(Explainer):
    """view() is called on a tensor whose elements do not lie in order.

    Means: after transpose, permute or slicing, memory has another order than the axes, and view can't copy.

    Raises:
        images = torch.zeros(4, 5).t()
        images.view(-1)

    Works:
        images = torch.zeros(4, 5).t()
        images.reshape(-1)

    Fix: write reshape in place of view, which copies where it must (or .contiguous().view(...)).

    Cases:
        otherwise: not contiguous: {tensor}.
    """

    messages = (
        r"view size is not compatible with input tensor's size and stride",
        r"invalid argument \d+: view size is not compatible",
        r"input is not contiguous",
    )

    def concerns(self, tensor: Any) -> bool:
        return not tensor.is_contiguous()
