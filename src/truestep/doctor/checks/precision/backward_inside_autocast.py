# SPDX-License-Identifier: Apache-2.0
"""backward() under autocast."""

import ast
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import ADVICE, At, SourceCheck
from truestep.doctor.library.functions import functions
from truestep.doctor.source.events import TraceEvent
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.rewriting import Edits, SourceRewriteError, moved_after

AUTOCAST = functions("casts within")


class BackwardInsideAutocast(SourceCheck):
    """backward() is called inside the autocast block.

    Why: backward ops run in the types that forward chose; autocast around them is not needed and torch
    advises against it.

    Bad:
        for x, y in loader:
            opt.zero_grad()
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = F.cross_entropy(net(x), y)
                loss.backward()  # here
            opt.step()

    Good:
        for x, y in loader:
            opt.zero_grad()
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = F.cross_entropy(net(x), y)
            loss.backward()
            opt.step()

    Fix: end the block before backward().
    """

    code = "AMP002"
    words = ("autocast",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a backward under a `with autocast(...)`."""
        for trace in module.traces:
            for event in trace.of("backward"):
                if _under_autocast(module, event):
                    yield At(event.node, "backward() is called inside autocast.", ADVICE)

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Go backward after the block."""
        block = module.parents[module.statement(node)]
        if not isinstance(block, ast.With) or block.body[-1] is not module.statement(node):
            raise SourceRewriteError
        return moved_after(module, node, block)


def _under_autocast(module: SourceModule, event: TraceEvent) -> bool:
    blocks = [frame.node for frame in event.path if isinstance(frame.node, ast.With)]
    contexts = [item.context_expr for block in blocks for item in block.items]
    for context in contexts:
        if isinstance(context, ast.Call) and module.qualify(context.func) in AUTOCAST:
            off = any(
                word.arg == "enabled" and ast.unparse(word.value) == "False" for word in context.keywords
            )
            return not off
    return False
