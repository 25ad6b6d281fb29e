# SPDX-License-Identifier: Apache-2.0
"""size_average and reduce."""

from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import ADVICE, At, SourceCheck
from truestep.doctor.source.losses import losses_of
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.rewriting import Edits, SourceRewriteError, replaced
from truestep.doctor.source.values import constant


class OldReduction(SourceCheck):
    """A loss is given size_average or reduce.

    Why: deprecated; torch warns.

    Bad:
        criterion = nn.CrossEntropyLoss(size_average=False)  # here

    Good:
        criterion = nn.CrossEntropyLoss(reduction="sum")

    Fix: reduction="mean", "sum" or "none".

    Evidence: eriklindernoren/PyTorch-GAN 36d3c77e implementations/stargan/stargan.py:77; 186 repositories:
    said 25 times, not judged.
    """

    code = "OLD011"
    rewrites = "safe"
    words = ("size_average", "reduce=")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report the keywords."""
        layers = [call for name, call in module.calls_matching("torch.nn.") if name.endswith("Loss")]
        for call in [*layers, *losses_of(module)]:
            if any(word.arg in ("size_average", "reduce") for word in call.keywords):
                yield At(call, "size_average and reduce are deprecated: reduction says it.", ADVICE)

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Say the reduction."""
        old = [word for word in node.keywords if word.arg in ("size_average", "reduce")]
        value = constant(old[0].value)
        if len(old) != 1 or not isinstance(value, bool):
            raise SourceRewriteError
        new = "mean" if value else "sum" if old[0].arg == "size_average" else "none"
        return [replaced(module, old[0], f'reduction="{new}"')]
