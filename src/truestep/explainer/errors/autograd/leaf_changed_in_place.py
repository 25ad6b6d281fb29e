# SPDX-License-Identifier: Apache-2.0
from typing import Any

from truestep.explainer.explainer import Explainer


class LeafChangedInPlace(Explainer):
    """A parameter is changed in place where autograd records.

    Means: leaves hold the values that training moves; changing one within the graph would lose its gradient.

    Raises:
        weights = torch.zeros(3, requires_grad=True)
        weights += 1

    Works:
        weights = torch.zeros(3, requires_grad=True)
        with torch.no_grad():
            weights += 1

    Fix: wrap changes of weights (initialisation, own optimizers, moving averages) in torch.no_grad(); for a value in the
    forward write x = x + y, or x = x.clone() before x[i] = y.

    Cases:
        otherwise: the leaf is {tensor}.
    """

    messages = (
        r"a (?:view of a )?leaf Variable that requires grad (?:is being|has been) used in an in-?place operation",
    )

    def concerns(self, tensor: Any) -> bool:
        return bool(tensor.is_leaf and tensor.requires_grad)
