# SPDX-License-Identifier: Apache-2.0
"""get_rank() as a statement."""

import ast
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import ADVICE, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.rewriting import Edits, removed


class RankThrownAway(SourceCheck):
    """get_rank() or get_world_size() is called and its result not used.

    Why: the call has no other effect.

    Bad:
        dist.get_rank()  # here

    Good:
        rank = dist.get_rank()

    Fix: store it, or delete the line.
    """

    code = "DIST010"
    words = ("get_rank", "get_world_size")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report the call as a statement of its own."""
        for call in module.calls("torch.distributed.get_rank", "torch.distributed.get_world_size"):
            if isinstance(module.parents[call], ast.Expr):
                yield At(call, "The result is thrown away, and the call does nothing else.", ADVICE)

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Leave out the statement."""
        return [removed(module, node)]
