# SPDX-License-Identifier: Apache-2.0
"""SELU with the wrong dropout."""

import ast
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from truestep.doctor.check import ADVICE, RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.rewriting import Edits, renamed
from truestep.doctor.source.values import seen_through

_DEEP = 3  # layers through which it grows; a gate of one or two has none to keep


class SelfNormalisingNetSpoiled(SourceCheck):
    """SELU layers are followed by plain Dropout, or initialised with nonlinearity="selu".

    Why: SELU keeps mean 0 and deviation 1 only with LeCun's initialisation and AlphaDropout: plain
    Dropout makes the deviation grow layer by layer; kaiming with "selu" or "relu" lets it shrink.

    Bad:
        net = nn.Sequential(nn.Linear(8, 8), nn.SELU(), nn.Dropout(0.2), nn.Linear(8, 3))  # here

    Good:
        net = nn.Sequential(nn.Linear(8, 8), nn.SELU(), nn.AlphaDropout(0.2), nn.Linear(8, 3))

    Fix: nn.AlphaDropout, and kaiming_normal_(w, nonlinearity="linear") with zero bias.
    """

    code = "PARAM012"
    words = ("SELU",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a display of layers in which Dropout comes straight after SELU."""
        displays = [(call, call.args) for call in module.calls("torch.nn.Sequential")]
        displays += [(node, node.elts) for node in module.all(ast.List)]  # type: ignore[misc]
        for node, parts in displays:
            made = [seen_through(module, part) for part in parts]
            names = [module.qualify(part.func) if isinstance(part, ast.Call) else None for part in made]
            for first, second in pairwise(names):
                if first == "torch.nn.SELU" and second == "torch.nn.Dropout":
                    deep = names.count("torch.nn.SELU") >= _DEEP or module.loop(node) is not None
                    text = "Plain Dropout after SELU: the deviation grows layer by layer."
                    yield At(node, text, RISK if deep else ADVICE)
                    break

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Take AlphaDropout."""
        parts = [
            seen_through(module, each) for each in (node.args if isinstance(node, ast.Call) else node.elts)
        ]
        return [
            renamed(module, second.func, "AlphaDropout")
            for first, second in pairwise(parts)
            if isinstance(first, ast.Call)
            and isinstance(second, ast.Call)
            and module.qualify(first.func) == "torch.nn.SELU"
            and module.qualify(second.func) == "torch.nn.Dropout"
        ]
