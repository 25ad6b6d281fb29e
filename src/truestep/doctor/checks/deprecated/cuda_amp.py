# SPDX-License-Identifier: Apache-2.0
"""torch.cuda.amp."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import ADVICE, At, SourceCheck
from truestep.doctor.source.module import SourceModule

MODERN = {
    "torch.cuda.amp.autocast": 'torch.autocast("cuda")',
    "torch.cuda.amp.GradScaler": 'torch.amp.GradScaler("cuda")',
    "torch.cuda.amp.custom_fwd": 'torch.amp.custom_fwd(device_type="cuda")',
    "torch.cuda.amp.custom_bwd": 'torch.amp.custom_bwd(device_type="cuda")',
    "torch.cpu.amp.autocast": 'torch.autocast("cpu")',
}


class CudaAmp(SourceCheck):
    """torch.cuda.amp is used.

    Why: deprecated since 2.4; torch warns, and one day it is gone.

    Bad:
        scaler = torch.cuda.amp.GradScaler()  # here

    Good:
        scaler = torch.amp.GradScaler("cuda")

    Fix: torch.autocast("cuda"), torch.amp.GradScaler("cuda").
    """

    code = "OLD001"
    words = ("amp",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report calls and decorators of the old names."""
        nodes: list[ast.Name | ast.Attribute] = [*module.all(ast.Name), *module.all(ast.Attribute)]
        for node in nodes:
            name = module.qualify(node)
            if (
                name in MODERN
                and not isinstance(module.parents[node], ast.Attribute)
                and isinstance(node.ctx, ast.Load)
            ):
                yield At(node, f"{name} is deprecated: write {MODERN[name]}.", ADVICE)
