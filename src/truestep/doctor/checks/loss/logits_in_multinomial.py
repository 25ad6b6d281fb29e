# SPDX-License-Identifier: Apache-2.0
"""Sampling from raw outputs."""

import ast
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.library.functions import functions
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.rewriting import Edits, SourceRewriteError, insert_behind
from truestep.doctor.source.value_origins import (
    argument,
    constant,
    last_operations,
    literal,
    resolve_expression,
)


class LogitsInMultinomial(SourceCheck):
    """torch.multinomial gets a model's raw outputs instead of probabilities, or fewer weights above 0 than it is to draw.

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
            if (few := _too_few_weights_message(module, call)) is not None:
                yield At(call, few)
            given = argument(call, 0, "input")
            values = [given] if not isinstance(given, ast.Name) else module.definitions(given)
            direct = all(each is not None and self._is_module_output(module, each) for each in values)
            if (
                given is not None
                and values
                and direct
                and not last_operations(module, given) & {"softmax", "exp", "sigmoid"}
            ):
                yield At(call, "The weights to draw by are raw outputs, not probabilities.")

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Take the softmax first."""
        if _too_few_weights_message(module, node) is not None:
            return ()
        if not isinstance(node.args[0], (ast.Name, ast.Call, ast.Attribute, ast.Subscript)):
            raise SourceRewriteError
        return [insert_behind(module, node.args[0], ".softmax(-1)")]

    def _is_module_output(self, module: SourceModule, node: ast.expr) -> bool:
        while isinstance(node, ast.Subscript):
            node = node.value
        return isinstance(node, ast.Call) and module.kind(node.func) in ("module", "ddp")


def _too_few_weights_message(module: SourceModule, call: ast.Call) -> str | None:
    """Say so where more is drawn than there are weights above zero: an index of weight zero is given then."""
    made = resolve_expression(module, argument(call, 0, "input"))
    given = made.args[0] if isinstance(made, ast.Call) and made.args else None
    number, again = literal(module, argument(call, 1, "num_samples")), argument(call, 2, "replacement")
    if not isinstance(made, ast.Call) or module.qualify(made.func) not in functions("takes numbers over"):
        return None
    if not isinstance(given, (ast.List, ast.Tuple)) or literal(module, again) not in (None, False):
        return None
    weights = [constant(each) for each in given.elts]
    if not isinstance(number, int) or any(type(each) not in (int, float) for each in weights):
        return None
    left = sum(each != 0 for each in weights)
    text = f"{number} are drawn, and {left} of {len(weights)} weights are above 0: others are given, or it raises."
    return text if left < number and (again is None or literal(module, again) is False) else None
