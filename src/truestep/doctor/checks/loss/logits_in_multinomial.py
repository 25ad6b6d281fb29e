# SPDX-License-Identifier: Apache-2.0
"""Sampling from raw outputs."""

import ast
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.rewriting import Edits, SourceRewriteError, inserted_behind
from truestep.doctor.source.values import argument, last_operations


class LogitsInMultinomial(SourceCheck):
    """torch.multinomial gets a model's raw outputs instead of probabilities.

    Why: negative logits raise; positive ones are taken as weights, a much flatter distribution than
    softmax gives.

    Bad:
        drawn = torch.multinomial(net(x), 1)  # here

    Good:
        drawn = torch.multinomial(net(x).softmax(-1), 1)

    Fix: logits.softmax(-1) first.

    Evidence: the plain form in snippet 45 of the notes.
    """

    code = "LOSS012"
    words = ("multinomial",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report an input that is the direct output of a module which does not end in a softmax."""
        for call in module.calls("torch.multinomial"):
            given = argument(call, 0, "input")
            values = [given] if not isinstance(given, ast.Name) else module.definitions(given)
            direct = all(each is not None and self._is_output(module, each) for each in values)
            if (
                given is not None
                and values
                and direct
                and not last_operations(module, given) & {"softmax", "exp", "sigmoid"}
            ):
                yield At(call, "The weights to draw by are raw outputs, not probabilities.")

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Take the softmax first."""
        if not isinstance(node.args[0], ast.Name | ast.Call | ast.Attribute | ast.Subscript):
            raise SourceRewriteError
        return [inserted_behind(module, node.args[0], ".softmax(-1)")]

    def _is_output(self, module: SourceModule, node: ast.expr) -> bool:
        while isinstance(node, ast.Subscript):
            node = node.value
        return isinstance(node, ast.Call) and module.kind(node.func) in ("module", "ddp")
