# SPDX-License-Identifier: Apache-2.0
from typing import Any

from truestep.explainer.explainer import Explainer
from truestep.explainer.values import dtype_at_crash


class MaskShapeDiffers(Explainer):
    """A tensor is indexed with a mask of another shape.

    Means: x[mask] needs a mask whose axes are the first axes of x, each of the same size; nothing is broadcast.

    Raises:
        values = torch.zeros(3, 2)
        values[torch.ones(4, dtype=torch.bool)]

    Works:
        values = torch.zeros(3, 2)
        values[torch.ones(3, dtype=torch.bool)]

    Fix: make the mask of the tensor that it selects from, after the same cuts and permutations; take the superfluous axis away
    (mask.squeeze(-1)), or write torch.where(mask, x, y), which broadcasts. For indices use integers: x[mask.nonzero()].

    Cases:
        otherwise: a mask of shape [{mask}] selects from a tensor of shape [{shape}]: axis {axis} differs: the mask is
            {tensor}.
        otherwise: a mask of shape [{mask}] selects from a tensor of shape [{shape}]: axis {axis} differs.
    """

    types = ("IndexError",)
    messages = (
        (
            r"The shape of the mask \[(?P<mask>[\d, ]*)\] at index (?P<axis>\d+) does not match the shape of the indexed tensor "
            r"\[(?P<shape>[\d, ]*)\]"
        ),
        r"boolean index did not match indexed array along (?:axis|dimension) (?P<axis>\d+)",
    )

    def concerns(self, tensor: Any) -> bool:
        return dtype_at_crash(tensor) in ("bool", "uint8")
