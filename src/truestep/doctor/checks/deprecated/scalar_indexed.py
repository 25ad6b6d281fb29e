# SPDX-License-Identifier: Apache-2.0
"""loss.data[0]."""

import ast
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.rewriting import Edits, replaced, text_of


class ScalarIndexed(SourceCheck):
    """A loss is read with .data[0].

    Why: a scalar has no index: IndexError.

    Bad:
        loss = F.cross_entropy(net(x), y)
        print(loss.data[0])  # here

    Good:
        loss = F.cross_entropy(net(x), y)
        print(loss.item())

    Fix: loss.item().

    Evidence: eriklindernoren/PyTorch-GAN 36d3c77e implementations/began/began.py:196; bed E: 23 true, 0 false;
    bed F: 22 true, 0 false; bed G: 26 true, 0 false; bed H: 17 true, 0 false; 186 repositories: 36 true, 0
    false.
    """

    code = "OLD008"
    words = (".data[0]",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report it on names that are losses."""
        for node in module.all(ast.Subscript):
            index = node.slice.value if isinstance(node.slice, ast.Constant) else None
            if index == 0 and isinstance(node.value, ast.Attribute) and node.value.attr == "data":
                if "loss" in ast.unparse(node.value.value).lower():
                    yield At(node, "A scalar can't be indexed: this raises IndexError.")

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Ask for the number."""
        return [replaced(module, node, f"{text_of(module, node.value.value)}.item()")]
