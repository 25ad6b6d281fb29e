# SPDX-License-Identifier: Apache-2.0
import re
from math import prod

from truestep.explainer.explainer import Crash, Explainer, Match


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

    Cases:
        otherwise: {size} elements do not fit ({shape}){and_shapes}. {written} rows are written, {rows} are there: the last
            batch of an epoch is smaller.
            Fix: write x.size(0) or -1 for the batch in place of a number (or drop_last=True in the training loader).
        otherwise: {size} elements do not fit ({shape}){and_shapes}.
    """

    messages = (
        r"shape '\[(?P<shape>[-\d, ]*)\]' is invalid for input of size (?P<size>\d+)",
        r"size '\[(?P<shape>[-\dx ]*)\]' is invalid for input with (?P<size>\d+) elements",
        r"cannot reshape array of size (?P<size>\d+) into shape \(?(?P<shape>[-\d, ]*)\)?",
    )

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        size, wanted = int(match["size"]), [int(each) for each in re.findall(r"-?\d+", match["shape"])]
        fixed, facts = prod(part for part in wanted if part != -1), {"shape": match["shape"]}
        if not fixed or len(wanted) < 2 or wanted[0] <= 1 or -1 in wanted or size % (fixed // wanted[0]):
            return facts
        return {**facts, "written": str(wanted[0]), "rows": str(size // (fixed // wanted[0]))}
