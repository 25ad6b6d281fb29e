# SPDX-License-Identifier: Apache-2.0
from typing import Any

from truestep.explainer.explainer import Explainer


class InferenceTensorInTraining(Explainer):
    """A tensor made under inference_mode is used where gradients are recorded.

    Means: inference_mode leaves out what autograd needs, for good: such tensors can't take part in training.

    Raises:
        weights = torch.ones(2, requires_grad=True)
        with torch.inference_mode():
            features = torch.ones(2)
        (weights * features).sum().backward()

    Works:
        weights = torch.ones(2, requires_grad=True)
        with torch.no_grad():
            features = torch.ones(2)
        (weights * features).sum().backward()

    Fix: use torch.no_grad() where the result is trained on afterwards (features, caches, targets), or clone() it outside.

    Cases:
        otherwise: made under inference_mode: {tensor}.
    """

    messages = (
        r"Inference tensors cannot be saved for backward",
        r"Inplace update to inference tensor outside InferenceMode is not allowed",
        r"Cannot set version_counter for inference tensor",
        r"Setting requires_grad=True on inference tensor outside InferenceMode",
    )

    def concerns(self, tensor: Any) -> bool:
        return bool(tensor.is_inference())
