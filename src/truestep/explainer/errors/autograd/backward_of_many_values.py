# SPDX-License-Identifier: Apache-2.0
"""BackwardOfManyValues."""

from truestep.explainer.crash import Crash
from truestep.explainer.evidence import with_origin
from truestep.explainer.explainer import Cause, Explainer, Match


class BackwardOfManyValues(Explainer):
    """backward is called on a tensor of several values.

    Means: a gradient is that of one number; a loss for each example must become one first.

    Raises:
        losses = torch.zeros(3, requires_grad=True).square()
        losses.backward()

    Works:
        losses = torch.zeros(3, requires_grad=True).square()
        losses.mean().backward()

    Fix: write loss.mean().backward() (or .sum()); look for reduction="none", and under DataParallel for one loss a
    card. For a Jacobian use ts.jacobian.
    """

    messages = (r"grad can be implicitly created only for scalar outputs",)

    def cause(self, crash: Crash, match: Match) -> Cause | None:
        many = [each for each in crash.tensors if each.value.dim()]
        return Cause(f"{with_origin(crash, many[0])}.") if many else None
