# SPDX-License-Identifier: Apache-2.0
"""LeafChangedInPlace."""

from truestep.explainer.crash import Crash
from truestep.explainer.evidence import with_origin
from truestep.explainer.explainer import Cause, Explainer, Match


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
    """

    messages = (
        r"a (?:view of a )?leaf Variable that requires grad (?:is being|has been) used in an in-?place operation",
    )

    def cause(self, crash: Crash, match: Match) -> Cause | None:
        leaves = [each for each in crash.tensors if each.value.is_leaf and each.value.requires_grad]
        return Cause(f"the leaf is {with_origin(crash, leaves[0])}.") if leaves else None
