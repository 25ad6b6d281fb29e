# SPDX-License-Identifier: Apache-2.0
"""find_unused_parameters by habit."""

from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import ADVICE, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.rewriting import Edits, without_keyword
from truestep.doctor.source.values import argument, literal


class UnusedParametersSearched(SourceCheck):
    """DistributedDataParallel is told to look for unused parameters in every step.

    Why: an extra walk over the graph in each step; torch warns when there are none.

    Bad:
        net = DDP(net, find_unused_parameters=True)  # here

    Good:
        net = DDP(net)

    Fix: delete parameters that are never used; keep the flag only for layers that are skipped at times.
    """

    code = "DIST007"
    words = ("find_unused_parameters",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report it, unless the wrapped class skips layers at random."""
        for call in module.calls("torch.nn.parallel.DistributedDataParallel"):
            if literal(
                module, argument(call, None, "find_unused_parameters")
            ) is True and not module.identifiers & {
                "random",
                "rand",
            }:
                yield At(call, "The graph is searched for unused parameters in every step.", ADVICE)

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Leave out the argument."""
        return [without_keyword(module, node, "find_unused_parameters")]
