# SPDX-License-Identifier: Apache-2.0
"""NVIDIA apex's amp, optimizers and wrappers."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import ADVICE, At, SourceCheck
from truestep.doctor.source.module import SourceModule


class Apex(SourceCheck):
    """NVIDIA apex is imported for mixed precision, fused optimizers or its data-parallel wrapper.

    Why: apex.amp is deprecated and unmaintained; torch has all of it.

    Bad:
        from apex import amp  # here

    Good:
        scaler = torch.amp.GradScaler("cuda")

    Fix: torch.autocast and torch.amp.GradScaler; torch.optim.AdamW(..., fused=True); DistributedDataParallel.

    Evidence: the plain form in snippet 48 of the notes; 186 repositories: said 19 times, not judged.
    """

    code = "OLD002"
    words = ("apex",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report the first import, and amp.initialize or apex optimizers where the import is out of sight."""
        nodes: list[ast.Import | ast.ImportFrom] = [*module.all(ast.Import), *module.all(ast.ImportFrom)]
        for node in nodes:
            names = (
                [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else [alias.name for alias in node.names]
            )
            if any(name.split(".")[0] == "apex" for name in names):
                yield At(
                    node,
                    "apex is deprecated: torch has mixed precision and fused optimizers of its own.",
                    ADVICE,
                )
                return
        for name, call in module.calls_matching("apex."):
            yield At(call, f"{name} is deprecated: torch has it.", ADVICE)
            return
