# SPDX-License-Identifier: Apache-2.0
"""ResultNotCastable."""

from truestep.explainer.crash import Crash
from truestep.explainer.evidence import with_origin
from truestep.explainer.explainer import Cause, Explainer, Match


class ResultNotCastable(Explainer):
    """A floating point result is to be stored in an integer tensor.

    Means: operations in place (+=, add_) and losses store their result in the first tensor's dtype.

    Raises:
        total = torch.tensor([0, 0])
        total += torch.tensor([0.5, 0.5])

    Works:
        total = torch.tensor([0.0, 0.0])
        total += torch.tensor([0.5, 0.5])

    Fix: make the tensor floating point: labels.float() for BCE, zeros(..., dtype=torch.float32) for totals, or write
    x = x + y, which makes a new tensor.
    """

    messages = (r"result type (?P<first>\w+) can't be cast to the desired output type (?P<second>\w+)",)
    checks = ("LOSS008",)

    def cause(self, crash: Crash, match: Match) -> Cause | None:
        whole = [each for each in crash.tensors if not each.value.is_floating_point()]
        says = f"a {match['first']} result does not fit into a {match['second']} tensor"
        return Cause(f"{says}: {with_origin(crash, whole[0])}." if whole else f"{says}.")
