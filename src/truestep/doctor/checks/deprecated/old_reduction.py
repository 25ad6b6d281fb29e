# SPDX-License-Identifier: Apache-2.0
"""size_average and reduce."""

from collections.abc import Iterator

from truestep.doctor.check import ADVICE, At, SourceCheck
from truestep.doctor.source.losses import losses_of
from truestep.doctor.source.module import SourceModule


class OldReduction(SourceCheck):
    """A loss is given size_average or reduce.

    Why: deprecated; torch warns.

    Bad:
        criterion = nn.CrossEntropyLoss(size_average=False)  # here

    Good:
        criterion = nn.CrossEntropyLoss(reduction="sum")

    Fix: reduction="mean", "sum" or "none".
    """

    code = "OLD011"
    words = ("size_average", "reduce=")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report the keywords."""
        layers = [call for name, call in module.calls_matching("torch.nn.") if name.endswith("Loss")]
        for call in [*layers, *losses_of(module)]:
            if any(word.arg in ("size_average", "reduce") for word in call.keywords):
                yield At(call, "size_average and reduce are deprecated: reduction says it.", ADVICE)
