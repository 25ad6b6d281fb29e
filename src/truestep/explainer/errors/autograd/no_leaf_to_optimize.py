# SPDX-License-Identifier: Apache-2.0
from typing import Any

from truestep.explainer.explainer import Explainer


class NoLeafToOptimize(Explainer):
    """A result of a computation is used where a leaf is needed: in an optimizer, or in deepcopy.

    Means: only leaves are trained; randn(..., requires_grad=True).to(device) or * 0.1 gives a result of it, no leaf.

    Raises:
        scale = torch.ones(3, requires_grad=True) * 0.1
        torch.optim.SGD([scale], lr=0.1)

    Works:
        scale = (torch.ones(3) * 0.1).requires_grad_()
        torch.optim.SGD([scale], lr=0.1)

    Fix: compute and move first, then call requires_grad_() (or wrap it in nn.Parameter). For deepcopy: detach what the
    model stores from its forward; old weight_norm: use torch.nn.utils.parametrizations.weight_norm.

    Cases:
        otherwise: it is a result: {tensor}.
    """

    messages = (
        r"can't optimize a non-leaf Tensor",
        r"Only Tensors created explicitly by the user \(graph leaves\) support the deepcopy protocol",
    )
    checks = ("GRAD013",)

    def concerns(self, tensor: Any) -> bool:
        return tensor.grad_fn is not None
