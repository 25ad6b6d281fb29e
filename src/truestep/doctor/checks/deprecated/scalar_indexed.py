# SPDX-License-Identifier: Apache-2.0
"""loss.data[0]."""

import ast
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import At, SourceCheck, Unsure
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.once import asked_once
from truestep.doctor.source.rewriting import Edits, replaced, text_of
from truestep.doctor.source.values import value_origins


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

    Evidence: eriklindernoren/PyTorch-GAN 36d3c77e implementations/began/began.py:196; 186 repositories, beds E,
    F, G, H, I, K, L, M, N, O, P, Q, R, S, T: 320 true, 5 false.
    """

    code = "OLD008"
    words = (".data[0]",)

    def read(self, module: SourceModule) -> Iterator[At | Unsure]:
        """Report it on names that are losses."""
        for node in module.all(ast.Subscript):
            index = node.slice.value if isinstance(node.slice, ast.Constant) else None
            if index == 0 and isinstance(node.value, ast.Attribute) and node.value.attr == "data":
                if "loss" not in ast.unparse(node.value.value).lower():
                    continue
                if _is_foreign(module, node.value.value):
                    yield Unsure(node, "another library makes the loss: its shape is out of sight")
                else:
                    yield At(node, "A scalar can't be indexed: this raises IndexError.")

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Ask for the number."""
        return [replaced(module, node, f"{text_of(module, node.value.value)}.item()")]


@asked_once(False)
def _is_foreign(module: SourceModule, loss: ast.expr, depth: int = 0) -> bool:
    """Tell whether a value is, or is computed from, what a library other than torch gives."""
    for value in value_origins(module, loss):
        if isinstance(value, ast.BinOp):
            if any(_is_foreign(module, each, depth + 1) for each in (value.left, value.right)):
                return True
        elif isinstance(value, ast.Call):
            results = module.functions.results(module.functions.target(value))
            for maker in (value, *value_origins(module, value.func)):
                if isinstance(maker, ast.Call):
                    if _is_of_library(module, maker):
                        return True
                    owner = module.classes.named(maker.func)
                    results += module.functions.results(module.classes.method(owner, "forward"))
            if any(_is_foreign(module, each, depth + 1) for each in results):
                return True
    return False


def _is_of_library(module: SourceModule, call: ast.Call) -> bool:
    home, dot, _ = (module.qualify(call.func) or "").partition(".")
    return bool(dot) and home != "torch"
