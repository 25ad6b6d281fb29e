# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Explainer


class TensorNotInGraph(Explainer):
    """A gradient is asked for a tensor that the output does not depend on.

    Means: autograd.grad found no way from the output to this input, often as a copy or a slice of it was used.

    Raises:
        used, unused = torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)
        torch.autograd.grad(used * 2, unused)

    Works:
        used, unused = torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)
        torch.autograd.grad(used * 2, [used, unused], allow_unused=True)

    Fix: call requires_grad_() before the forward and use that very tensor in it; where an input may be unused, pass
    allow_unused=True and expect None.
    """

    messages = (
        r"One of the differentiated Tensors appears to not have been used in the graph",
        r"The differentiated Tensor at index \d+ appears to not have been used in the graph",
        r"One of the differentiated Tensors does not require grad",
    )
