# SPDX-License-Identifier: Apache-2.0
"""MaskShapeDiffers."""

from truestep.explainer.evidence import tensors_with, with_origin
from truestep.explainer.explainer import Cause, Crash, Explainer, Match
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
    """

    types = ("IndexError",)
    messages = (
        (
            r"The shape of the mask \[(?P<mask>[\d, ]*)\] at index (?P<axis>\d+) does not match the shape of the indexed tensor "
            r"\[(?P<shape>[\d, ]*)\]"
        ),
        r"boolean index did not match indexed array along (?:axis|dimension) (?P<axis>\d+)",
    )

    def cause(self, crash: Crash, match: Match) -> Cause | None:
        found = match.groupdict()
        if not found.get("mask"):
            return None
        masks = tensors_with(crash, lambda each: dtype_at_crash(each) in ("bool", "uint8"))
        shown = f": the mask is {with_origin(crash, masks[0])}" if masks else ""
        return Cause(
            f"a mask of shape [{found['mask']}] selects from a tensor of shape [{found['shape']}]: axis {found['axis']} differs"
            f"{shown}."
        )
