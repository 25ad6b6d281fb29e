# SPDX-License-Identifier: Apache-2.0
from typing import Any

from truestep.explainer.explainer import Explainer


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

    Cases:
        otherwise: a {first} result does not fit into a {second} tensor{and_tensor}.
    """

    messages = (r"result type (?P<first>\w+) can't be cast to the desired output type (?P<second>\w+)",)

    def concerns(self, tensor: Any) -> bool:
        return not tensor.is_floating_point()
