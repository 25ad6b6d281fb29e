# SPDX-License-Identifier: Apache-2.0
"""Fractions turned into integers."""

import ast
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import walk
from truestep.doctor.source.rewriting import Edits, inserted_behind
from truestep.doctor.source.values import seen_through


class FractionsTruncated(SourceCheck):
    """A tensor written with fractions is converted to integers.

    Why: the conversion cuts towards zero: 1.9 becomes 1, and -1.9 becomes -1.

    Bad:
        q = torch.tensor([1.9, -1.9]).long()  # here

    Good:
        q = torch.tensor([1.9, -1.9]).round().long()

    Fix: .round() (or floor) first.
    """

    code = "DATA009"
    words = (".long()", ".int()")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report .long() straight on a literal tensor that holds a fraction."""
        for call in module.method_calls("long", "int", "short"):
            made = seen_through(module, call.func.value) if isinstance(call.func, ast.Attribute) else None
            if isinstance(made, ast.Call) and module.qualify(made.func) == "torch.tensor" and made.args:
                numbers = [node.value for node in walk(made.args[0]) if isinstance(node, ast.Constant)]
                if any(isinstance(each, float) and each != int(each) for each in numbers):
                    yield At(call, "The fractions are cut off towards zero.", RISK)

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Round first."""
        return [inserted_behind(module, node.func.value, ".round()")]
