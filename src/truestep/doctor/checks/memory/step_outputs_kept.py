# SPDX-License-Identifier: Apache-2.0
"""What a training step gives back, kept in a list."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted, walk


class StepOutputsKept(SourceCheck):
    """A training step appends the loss that it returns to a list of its module.

    Why: the trainer runs backward on it, so it has its graph: memory grows with each step of the epoch.

    Bad:
        class Task(lightning.LightningModule):
            def training_step(self, batch, index):
                x, y = batch
                loss = F.cross_entropy(self.net(x), y)
                self.outputs.append(loss)  # here
                return loss

    Good:
        class Task(lightning.LightningModule):
            def training_step(self, batch, index):
                x, y = batch
                loss = F.cross_entropy(self.net(x), y)
                self.outputs.append(loss.detach())
                return loss

    Fix: append loss.detach().
    """

    code = "MEM005"
    words = ("training_step",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report the append of the very value that a training_step returns."""
        for function in module.functions:
            if function.name != "training_step":
                continue
            given = {each.value.id for each in module.returns(function) if isinstance(each.value, ast.Name)}
            for call in (each for each in walk(function) if isinstance(each, ast.Call)):
                if (
                    isinstance(call.func, ast.Attribute)
                    and call.func.attr == "append"
                    and len(call.args) == 1
                ):
                    kept, owner = call.args[0], dotted(call.func.value) or ""
                    if isinstance(kept, ast.Name) and kept.id in given and owner.startswith("self."):
                        yield At(
                            call, f"{owner} keeps the returned loss of every step, each with its graph.", RISK
                        )
