# SPDX-License-Identifier: Apache-2.0
"""Accelerate told to accumulate, and never asked to."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted
from truestep.doctor.source.values import argument, constant, seen_through


class AccumulationNeverEntered(SourceCheck):
    """An Accelerator has gradient_accumulation_steps, and a loop does not enter accumulate().

    Why: backward divides the loss by the number of steps, and the optimizer steps at every batch all the same.

    Bad:
        from accelerate import Accelerator

        accelerator = Accelerator(gradient_accumulation_steps=4)
        net, opt, loader = accelerator.prepare(net, opt, loader)
        for x, y in loader:  # here
            loss = F.cross_entropy(net(x), y)
            accelerator.backward(loss)
            opt.step()
            opt.zero_grad()

    Good:
        from accelerate import Accelerator

        accelerator = Accelerator(gradient_accumulation_steps=4)
        net, opt, loader = accelerator.prepare(net, opt, loader)
        for x, y in loader:
            with accelerator.accumulate(net):
                loss = F.cross_entropy(net(x), y)
                accelerator.backward(loss)
                opt.step()
                opt.zero_grad()

    Fix: with accelerator.accumulate(net): around the batch.
    """

    code = "GRAD046"
    words = ("gradient_accumulation_steps",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a backward in a loop of a function that neither enters accumulate nor counts by itself."""
        if not any(
            _accumulates(each) for file in module.linked for each in file.calls("accelerate.Accelerator")
        ):
            return
        for call in module.method_calls("backward"):
            if not _is_accelerator(module, call) or module.loop(call) is None:
                continue
            scope = module.scope(call)
            asked = [
                each for each in module.method_calls("accumulate", "no_sync") if module.scope(each) is scope
            ]
            if not asked and not _counts(module, scope):
                yield At(
                    module.loop(call) or call,
                    "The loss is divided for an accumulation that this loop does not enter.",
                    RISK,
                )


def _is_accelerator(module: SourceModule, call: ast.Call) -> bool:
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    made = seen_through(module, owner)
    if isinstance(made, ast.Call) and module.target(made) is None and module.qualify(made.func) is not None:
        return module.qualify(made.func) == "accelerate.Accelerator"
    return owner is not None and (dotted(owner) or "").rsplit(".", 1)[-1] == "accelerator"


def _accumulates(call: ast.Call) -> bool:
    steps = argument(call, None, "gradient_accumulation_steps")
    return steps is not None and constant(steps) != 1


def _counts(module: SourceModule, scope: ast.AST) -> bool:
    """Tell whether a function asks for a remainder: it may accumulate by itself."""
    return any(
        isinstance(each.op, ast.Mod) and "accum" in ast.unparse(each)
        for each in module.all(ast.BinOp)
        if module.scope(each) is scope
    )
