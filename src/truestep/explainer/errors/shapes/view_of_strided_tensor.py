# SPDX-License-Identifier: Apache-2.0
"""ViewOfStridedTensor."""

from truestep.explainer.crash import Crash
from truestep.explainer.evidence import with_origin
from truestep.explainer.explainer import Cause, Explainer, Match
from truestep.explainer.values import is_tensor_at_crash


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
    """

    messages = (
        r"view size is not compatible with input tensor's size and stride",
        r"invalid argument \d+: view size is not compatible",
        r"input is not contiguous",
    )

    def cause(self, crash: Crash, match: Match) -> Cause | None:
        mixed = [
            each
            for each in crash.tensors
            if is_tensor_at_crash(each.value) and not each.value.is_contiguous()
        ]
        return Cause(f"not contiguous: {with_origin(crash, mixed[0])}.") if mixed else None
