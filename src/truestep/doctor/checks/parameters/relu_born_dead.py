# SPDX-License-Identifier: Apache-2.0
"""A bias that switches every unit off."""

from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.rewriting import Edits, replace_node
from truestep.doctor.source.value_origins import argument, literal


class ReluBornDead(SourceCheck):
    """A bias is initialised to a large negative constant.

    Why: the ReLU after it gives 0 for every input, and no gradient passes: the layer never learns.

    Bad:
        nn.init.constant_(net[0].bias, -10.0)  # here

    Good:
        nn.init.zeros_(net[0].bias)

    Fix: zero bias; LeakyReLU and a lower rate against dying units; new initial weights revive them.

    Evidence: the plain form of row 86 of docs/mistakes.md.
    """

    code = "PARAM013"
    words = ("constant_",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report constant_ of a bias with a value of -1 or less, in a file with ReLUs or none in sight."""
        for call in module.calls("torch.nn.init.constant_"):
            given, value = argument(call, 0, "tensor"), literal(module, argument(call, 1, "val"))
            is_bias = given is not None and hasattr(given, "attr") and given.attr == "bias"
            if (
                is_bias
                and isinstance(value, (int, float))
                and -100 < value <= -1
                and not module.program.identifiers & {"sigmoid", "Sigmoid"}
            ):
                yield At(call, f"A bias of {value:g}: a ReLU after it is 0 for every input.", RISK)

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Begin with 0."""
        value = argument(node, 1, "val")
        return [replace_node(module, value, "0.0")] if value is not None else []
