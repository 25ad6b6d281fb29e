# SPDX-License-Identifier: Apache-2.0
"""L2 in Adam."""

from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import ADVICE, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.rewriting import Edits, rename_attribute
from truestep.doctor.source.value_origins import argument, literal


class WeightDecayInAdam(SourceCheck):
    """Adam is given a large weight_decay, which it adds to the gradient.

    Why: Adam divides it by the gradient's own size, so it decays as much less as a gradient is larger.

    Bad:
        opt = torch.optim.Adam(net.parameters(), lr=1e-3, weight_decay=0.1)  # here

    Good:
        opt = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.1)

    Fix: torch.optim.AdamW decays the weights themselves.

    Evidence: the plain form of row 63 of docs/mistakes.md; 186 repositories: said 6 times, not judged.
    """

    code = "PARAM008"
    rewrites = "choice"
    words = ("weight_decay",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a decay of the size that only AdamW takes; small ones are in use as L2."""
        for call in module.calls("torch.optim.Adam"):
            decay = literal(module, argument(call, 4, "weight_decay"))
            if (
                isinstance(decay, (int, float))
                and decay >= 0.01
                and argument(call, None, "decoupled_weight_decay") is None
            ):
                yield At(
                    call,
                    f"Adam adds weight_decay={decay:g} to the gradient; AdamW decays the weights.",
                    ADVICE,
                )

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Take AdamW."""
        return [rename_attribute(module, node.func, "AdamW")]
