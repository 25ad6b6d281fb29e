# SPDX-License-Identifier: Apache-2.0
"""torch.cuda.amp."""

import ast
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import ADVICE, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.rewriting import Edits, SourceRewriteError, name_of, replaced, with_first

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

    Evidence: the plain form in snippet 4 of the notes; 186 repositories: said 151 times, not judged.
    """

    code = "OLD001"
    rewrites = "safe"
    words = ("autocast", "GradScaler", "custom_fwd", "custom_bwd")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report calls and decorators of the old names."""
        nodes: list[ast.Name | ast.Attribute] = [*module.all(ast.Name), *module.all(ast.Attribute)]
        for node in nodes:
            whole = isinstance(node.ctx, ast.Load) and not isinstance(module.parents[node], ast.Attribute)
            if whole and (name := module.qualify(node)) in MODERN:
                yield At(node, f"{name} is deprecated: write {MODERN[name]}.", ADVICE)

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Write the name of today."""
        modern = MODERN[module.qualify(node) or ""]
        torch, call = name_of(module, "torch"), module.parents[node]
        if not (isinstance(call, ast.Call) and call.func is node):
            return [replaced(module, node, modern.replace("torch", torch, 1))]
        function, _, given = modern.rstrip(")").replace("torch", torch, 1).partition("(")
        if call.args and "GradScaler" not in modern:  # the old autocast's first argument was another one
            raise SourceRewriteError
        return [replaced(module, node, function), with_first(module, call, given)]
