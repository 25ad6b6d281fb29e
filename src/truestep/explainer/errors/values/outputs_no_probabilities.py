# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Explainer


class OutputsNoProbabilities(Explainer):
    """Binary cross entropy gets outputs or targets that are not between 0 and 1.

    Means: BCELoss wants probabilities; raw outputs of a layer are any numbers, and NaN is none between 0 and 1 either.

    Raises:
        outputs, labels = torch.tensor([2.0]), torch.tensor([1.0])
        F.binary_cross_entropy(outputs, labels)

    Works:
        outputs, labels = torch.tensor([2.0]), torch.tensor([1.0])
        F.binary_cross_entropy_with_logits(outputs, labels)

    Fix: use nn.BCEWithLogitsLoss on the raw outputs (without a sigmoid in the model); if they are NaN, look for the first NaN.

    Cases:
        `of target`: the targets leave 0 ... 1. Fix: scale the targets: labels / 255 for masks of 0 and 255.
    """

    messages = (
        r"all elements of (?:input|target) should be between 0 and 1",
        r"Assertion `\(?\*?input >= 0\.? && \*?input <= 1",
        r"Assertion `input_val >= zero && input_val <= one` failed",
    )
