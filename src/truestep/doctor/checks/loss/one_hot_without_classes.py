# SPDX-License-Identifier: Apache-2.0
"""one_hot whose width depends on the batch."""

from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.values import argument, forwards_all


class OneHotWithoutClasses(SourceCheck):
    """one_hot is called without the number of classes.

    Why: the width is the batch's largest label plus one: it changes from batch to batch.

    Bad:
        t = F.one_hot(y).float()  # here

    Good:
        t = F.one_hot(y, num_classes=3).float()

    Fix: F.one_hot(y, num_classes=...).
    """

    code = "LOSS009"
    words = ("one_hot",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report the call with one argument."""
        for call in module.calls("torch.nn.functional.one_hot"):
            if argument(call, 1, "num_classes") is None and not forwards_all(call):
                yield At(call, "The width of this one_hot is the largest label of the batch plus one.", RISK)
