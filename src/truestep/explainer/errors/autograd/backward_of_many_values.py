# SPDX-License-Identifier: Apache-2.0
from typing import Any

from truestep.explainer.explainer import Explainer


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

    Cases:
        otherwise: {tensor}.
    """

    messages = (r"grad can be implicitly created only for scalar outputs",)

    def concerns(self, tensor: Any) -> bool:
        return bool(tensor.dim())
