# SPDX-License-Identifier: Apache-2.0
from typing import Any

from truestep.explainer.explainer import Crash, Explainer, Match


class AmbiguousTruth(Explainer):
    """A tensor of several values is used where one is needed: in an if, or with item().

    Means: if, and, or, in and item() need one value; a comparison of tensors gives one for each element.

    Raises:
        scores = torch.zeros(2)
        if scores > 0:
            pass

    Works:
        scores = torch.zeros(2)
        if (scores > 0).any():
            pass

    Fix: say which: (x > 0).any() or .all(), x is None in place of x == None, & and | between masks; for a number reduce first:
    x.mean().item(). A loss class is made first: nn.CrossEntropyLoss()(outputs, labels).

    Cases:
        `loss_class=`: a loss class is made with tensors as its options.
            Fix: make it first: nn.CrossEntropyLoss()(outputs, labels).
        otherwise: {tensor}.
    """

    messages = (
        r"Boolean value of Tensor with (?:more than one value|no values) is ambiguous",
        r"a Tensor with (?P<num>\d+) elements cannot be converted to Scalar",
        r"only one element tensors can be converted to Python scalars",
        r"bool value of Tensor with more than one value is ambiguous",
        r"The truth value of an array with more than one element is ambiguous",
    )

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        text = crash.user.text if crash.user else ""
        return {"loss_class": "yes"} if "Loss(" in text and "()" not in text else {}

    def concerns(self, tensor: Any) -> bool:
        return bool(tensor.numel() != 1)
