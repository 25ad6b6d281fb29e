# SPDX-License-Identifier: Apache-2.0
"""Weights that a load unties."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted
from truestep.doctor.source.values import argument, literal


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
            assigned = literal(module, argument(call, 2, "assign")) is True
            home = module.scope(call)
            mine = [each for each in ties if _is_of_the_same(module, each, call)]
            again = any(module.scope(each) is home and each.lineno > call.lineno for each in mine)
            if assigned and mine and not again and not module.called_anywhere("tie_weights"):
                yield At(call, f"assign=True unties the weights that line {mine[0].lineno} tied.")


def _is_of_the_same(module: SourceModule, tie: ast.Assign, call: ast.Call) -> bool:
    """Tell whether a tie is of the model that is loaded: in its class, or of the same variable."""
    assert isinstance(call.func, ast.Attribute)
    model = call.func.value
    tied = (dotted(tie.targets[0]) or "").split(".")
    if tied[0] == "self":
        owner, loaded = module.enclosing(tie, ast.ClassDef), module.class_of(model)
        return owner is not None and loaded is not None and owner in module.lineage(loaded)
    name = dotted(model) or "?"
    return module.scope(tie) is module.scope(call) and ".".join(tied).startswith(f"{name}.")


def _ties(statement: ast.Assign) -> bool:
    target, value = statement.targets[0], statement.value
    return (
        isinstance(target, ast.Attribute)
        and isinstance(value, ast.Attribute)
        and target.attr == value.attr == "weight"
        and ast.unparse(target) != ast.unparse(value)
    )
