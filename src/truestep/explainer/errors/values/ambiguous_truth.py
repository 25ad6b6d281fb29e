# SPDX-License-Identifier: Apache-2.0
"""AmbiguousTruth."""

from truestep.explainer.evidence import with_origin
from truestep.explainer.explainer import Cause, Crash, Explainer, Match


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
    """

    messages = (
        r"Boolean value of Tensor with (?:more than one value|no values) is ambiguous",
        r"a Tensor with (?P<num>\d+) elements cannot be converted to Scalar",
        r"only one element tensors can be converted to Python scalars",
        r"bool value of Tensor with more than one value is ambiguous",
        r"The truth value of an array with more than one element is ambiguous",
    )

    def cause(self, crash: Crash, match: Match) -> Cause | None:
        user = crash.user
        if user is not None and any(f"{name}(" in user.text and "()" not in user.text for name in ("Loss",)):
            return Cause(
                "a loss class is made with tensors as its options.",
                "make it first: nn.CrossEntropyLoss()(outputs, labels).",
            )
        many = [each for each in crash.tensors if each.value.numel() != 1]
        return Cause(f"{with_origin(crash, many[0])}.") if many else None
