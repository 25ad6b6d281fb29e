# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Explainer


class NothingToJoin(Explainer):
    """torch.stack or torch.cat gets an empty list.

    Means: the list that was to be filled has no tensor: a loop did not run, or every item was filtered out.

    Raises:
        losses = []
        torch.stack(losses)

    Works:
        losses = [torch.zeros(1)]
        torch.stack(losses)

    Fix: look at the loop that fills the list (an empty loader, no match, no object in the image), and say what is meant where there
    is nothing: torch.zeros(0) or a skipped step.
    """

    messages = (
        r"stack expects a non-empty TensorList",
        r"expected a non-empty list of Tensors",
        r"need at least one array to (?:stack|concatenate)",
    )
