# SPDX-License-Identifier: Apache-2.0
"""ViewOfOtherSize."""

from math import prod

from truestep.explainer.evidence import shapes_on_line
from truestep.explainer.explainer import Cause, Crash, Explainer, Match


class ViewOfOtherSize(Explainer):
    """A tensor is viewed or reshaped to a shape with another number of elements.

    Means: view and reshape keep every element: the product of the new sizes must be that of the old ones.

    Raises:
        features = torch.zeros(4, 16, 4, 4)
        features.view(-1, 16 * 5 * 5)

    Works:
        features = torch.zeros(4, 16, 4, 4)
        features.flatten(1)

    Fix: write x.flatten(1), which keeps the batch and takes whatever follows, and fit the next layer to it; the last
    batch may be smaller, so take the batch size from x.size(0).
    """

    messages = (
        r"shape '\[(?P<shape>[-\d, ]*)\]' is invalid for input of size (?P<size>\d+)",
        r"size '\[(?P<shape>[-\dx ]*)\]' is invalid for input with (?P<size>\d+) elements",
        r"cannot reshape array of size (?P<size>\d+) into shape \(?(?P<shape>[-\d, ]*)\)?",
    )

    def cause(self, crash: Crash, match: Match) -> Cause | None:
        size, wanted = (
            int(match["size"]),
            [int(part) for part in match["shape"].replace("x", ",").split(",") if part.strip()],
        )
        fixed = prod(part for part in wanted if part != -1)
        shown = shapes_on_line(crash)
        says = f"{size} elements do not fit ({match['shape']})" + (f": {shown}." if shown else ".")
        if not fixed or not wanted:
            return Cause(says)
        if wanted[0] > 1 and len(wanted) > 1 and size % (fixed // wanted[0]) == 0 and -1 not in wanted:
            rows = size // (fixed // wanted[0])
            return Cause(
                f"{says} {wanted[0]} rows are written, {rows} are there: the last batch of an epoch is smaller.",
                "write x.size(0) or -1 for the batch in place of a number (or drop_last=True in the training loader).",
            )
        return Cause(says)
