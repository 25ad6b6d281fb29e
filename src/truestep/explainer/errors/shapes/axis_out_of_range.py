# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Crash, Explainer, Match


class AxisOutOfRange(Explainer):
    """A dim is named that the tensor does not have.

    Means: a tensor of k axes has the dims 0 to k - 1, or -k to -1.

    Raises:
        scores = torch.zeros(3)
        scores.softmax(dim=1)

    Works:
        scores = torch.zeros(3)
        scores.softmax(dim=-1)

    Fix: count the axes of the tensor here: a squeeze() without a dim, an index or a batch of one may have removed one.
    Write squeeze(dim), keepdim=True, or dim=-1 for the last.

    Cases:
        otherwise: dim {dim} of a tensor of {num} axes{and_shapes}.
        otherwise: {shapes}.
    """

    messages = (
        r"Dimension out of range \(expected to be in range of \[(?P<low>-?\d+), (?P<high>\d+)\], but got (?P<dim>-?\d+)\)",
        r"(?P<sizes>number of dimensions in the tensor input does not match the length of the desired ordering of dimensions.*)",
        r"expects a tensor with <= 2 dimensions, but self is (?P<rank>\dD)",
        r"iteration over a 0-d tensor|len\(\) of a 0-d tensor|invalid index of a 0-dim tensor",
        r"too many indices for (?:tensor of dimension \d+|array)",
        r"trying to index \d+ dimensions of a \d+ dimensional tensor",
        r"zero-dimensional tensor \(at position \d+\) cannot be concatenated",
    )

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        high = match.groupdict().get("high")
        return {"num": str(int(high) + 1)} if high else {}
