# SPDX-License-Identifier: Apache-2.0
"""one_hot into a loss that takes floats."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.library.losses import losses
from truestep.doctor.source.losses import losses_of
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.values import argument, is_call_of

FLOAT_TARGETS = losses(whole="refused")


class IntegerTargetsInBce(SourceCheck):
    """The int64 result of one_hot goes into a loss that takes floats.

    Why: torch raises RuntimeError.

    Bad:
        t = F.one_hot(y, 3)
        loss = F.binary_cross_entropy_with_logits(net(x), t)  # here

    Good:
        t = F.one_hot(y, 3).float()
        loss = F.binary_cross_entropy_with_logits(net(x), t)

    Fix: F.one_hot(y, num_classes).float(); for cross_entropy simply the class indices.
    """

    code = "LOSS008"
    words = ("one_hot",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a target that is one_hot on every path, unconverted."""
        for call in losses_of(module, *FLOAT_TARGETS):
            target = argument(call, 1, "target")
            values = (
                [target]
                if isinstance(target, ast.Call)
                else module.definitions(target)
                if target is not None
                else []
            )
            if values and all(is_call_of(module, each, "torch.nn.functional.one_hot") for each in values):
                yield At(call, "The target is one_hot's int64: this loss takes floats.")
