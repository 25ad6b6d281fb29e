# SPDX-License-Identifier: Apache-2.0
"""Weights that a load unties."""

import ast
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.rewriting import Edits, without_keyword
from truestep.doctor.source.values import argument, constant


class TiedWeightsUntied(SourceCheck):
    """A model with tied weights is loaded with assign=True.

    Why: each name gets a Parameter of its own: the two layers are no longer one, and the optimizer steps
    both.

    Bad:
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed = nn.Embedding(100, 16)
                self.head = nn.Linear(16, 100, bias=False)
                self.head.weight = self.embed.weight

        model = Model()
        model.load_state_dict(torch.load("weights.pt"), assign=True)  # here

    Good:
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed = nn.Embedding(100, 16)
                self.head = nn.Linear(16, 100, bias=False)
                self.head.weight = self.embed.weight

        model = Model()
        model.load_state_dict(torch.load("weights.pt"))

    Fix: leave out assign=True, or tie the weights again after loading.
    """

    code = "SAVE007"
    words = ("assign",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report the load in a file that ties `a.weight = b.weight`, unless it does so again after it."""
        ties = [each for each in module.all(ast.Assign) if _ties(each)]
        for call in module.method_calls("load_state_dict") if ties else ():
            assigned = constant(argument(call, 2, "assign")) is True
            home = module.scope(call)
            again = any(module.scope(each) is home and each.lineno > call.lineno for each in ties)
            if assigned and not again and not module.method_calls("tie_weights"):
                yield At(call, f"assign=True unties the weights that line {ties[0].lineno} tied.")

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Copy into the parameters that there are."""
        return [without_keyword(module, node, "assign")]


def _ties(statement: ast.Assign) -> bool:
    target, value = statement.targets[0], statement.value
    return (
        isinstance(target, ast.Attribute)
        and isinstance(value, ast.Attribute)
        and target.attr == value.attr == "weight"
        and ast.unparse(target) != ast.unparse(value)
    )
