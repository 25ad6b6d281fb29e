# SPDX-License-Identifier: Apache-2.0
"""A method's name where its call is meant."""

import ast
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.rewriting import Edits, inserted_behind

METHODS = {
    "eval": ("module", "ddp"),
    "train": ("module", "ddp"),
    "step": ("optimizer", "scheduler"),
    "zero_grad": ("optimizer", "module", "ddp"),
    "update": ("scaler",),
    "backward": (),
    "detach_": (),
}


class MethodNotCalled(SourceCheck):
    """A method of the training protocol stands alone, without the parentheses that call it.

    Why: `net.eval` only names the method: nothing happens, and Python does not complain.

    Bad:
        net.eval  # here
        with torch.no_grad():
            predictions = net(x)

    Good:
        net.eval()
        with torch.no_grad():
            predictions = net(x)

    Fix: add the parentheses.
    """

    code = "EVAL014"

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report an expression statement that is no more than such a name."""
        for statement in module.all(ast.Expr):
            value = statement.value
            if isinstance(value, ast.Attribute) and value.attr in METHODS:
                owners = METHODS[value.attr]
                if not owners or module.kind(value.value) in owners:
                    name = ast.unparse(value)
                    yield At(value, f"{name!r} is not called here: it needs parentheses.")

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Call it."""
        return [inserted_behind(module, node, "()")]
