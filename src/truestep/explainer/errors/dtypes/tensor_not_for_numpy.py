# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Explainer


class TensorNotForNumpy(Explainer):
    """A tensor can't become a NumPy array as it is: it has a graph, lies on a GPU, or has a dtype of torch alone.

    Means: NumPy shares a tensor's memory, so it must be on the CPU, outside of autograd, and of a dtype NumPy has.

    Raises:
        weights = torch.zeros(3, requires_grad=True)
        weights.numpy()

    Works:
        weights = torch.zeros(3, requires_grad=True)
        weights.detach().cpu().numpy()

    Fix: write x.detach().cpu().numpy(), with .float() before it for bfloat16 (or truestep's ts.to_numpy(x)). Plots and
    scikit-learn call numpy() themselves: convert what they are given.
    """

    messages = (
        r"Can't call numpy\(\) on (?:Tensor|Variable) that requires grad",
        r"can't convert (?:cuda:?\d*|CUDA|mps:?\d*) (?:device type )?tensor to numpy",
        r"Got unsupported ScalarType (?P<dtype>\w+)",
    )
