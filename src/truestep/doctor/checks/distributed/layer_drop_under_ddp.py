# SPDX-License-Identifier: Apache-2.0
"""Layers skipped at random under DDP."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.library.functions import functions
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import walk
from truestep.doctor.source.values import argument, literal

DRAWS = functions("draws a number", "draws by sizes")


class LayerDropUnderDdp(SourceCheck):
    """Layers are skipped at random in forward, and the model is wrapped in DistributedDataParallel.

    Why: DDP waits for the gradients of the skipped layer: the next forward raises; if one rank skips
    alone, ranks disagree.

    Bad:
        class Stack(nn.Module):
            def forward(self, x):
                for layer in self.layers:
                    if self.training and random.random() < 0.1:  # here
                        continue
                    x = layer(x)
                return x

        net = DDP(Stack())

    Good:
        class Stack(nn.Module):
            def forward(self, x):
                for layer in self.layers:
                    x = layer(x)
                return x

        net = DDP(Stack())

    Fix: find_unused_parameters=True with the same draw on all ranks, or add 0 * sum(p.sum() for p in ...)
    to the loss.

    Evidence: the plain form of row 94 of docs/mistakes.md.
    """

    code = "DIST006"
    words = ("DDP", "DistributedDataParallel")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a random condition around a continue, in a wrapped class."""
        for wrap in module.calls("torch.nn.parallel.DistributedDataParallel"):
            owner = module.class_of(wrap.args[0]) if wrap.args else None
            if owner is None or literal(module, argument(wrap, None, "find_unused_parameters")) is True:
                continue
            for node in walk(owner):
                if isinstance(node, ast.If) and any(
                    isinstance(each, ast.Call) and module.qualify(each.func) in DRAWS
                    for each in walk(node.test)
                ):
                    if any(isinstance(each, ast.Continue) for each in node.body):
                        yield At(node, "A layer that is skipped gets no gradient, for which DDP waits.")
