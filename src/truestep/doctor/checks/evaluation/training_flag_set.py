# SPDX-License-Identifier: Apache-2.0
"""A mode set by hand."""

import ast
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.rewriting import Edits, replaced, text_of
from truestep.doctor.source.values import constant


class TrainingFlagSet(SourceCheck):
    """The flag `training` of a model is set by hand.

    Why: only the outermost module gets it; the dropout and batch norm inside keep their mode.

    Bad:
        net.training = False  # here
        with torch.no_grad():
            predictions = net(x)

    Good:
        net.eval()
        with torch.no_grad():
            predictions = net(x)

    Fix: net.eval() or net.train(), which go through all submodules.
    """

    code = "EVAL015"
    words = (".training",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report an assignment of a literal to the flag of a module, outside of its own class."""
        for statement in module.all(ast.Assign):
            for target in statement.targets:
                if not (isinstance(target, ast.Attribute) and target.attr == "training"):
                    continue
                owner, mode = target.value, constant(statement.value)
                own = isinstance(owner, ast.Name) and owner.id == "self"
                if own or _is_layer(module, owner):
                    continue
                if isinstance(mode, bool) and module.kind(owner) in ("module", "ddp"):
                    right = f"{ast.unparse(owner)}.{'train' if mode else 'eval'}()"
                    yield At(statement, f"The layers inside keep their mode: write {right}.")

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Call the method that goes through all submodules."""
        mode = "train" if node.value.value else "eval"
        return [replaced(module, node, f"{text_of(module, node.targets[0].value)}.{mode}()")]


def _is_layer(module: SourceModule, owner: ast.expr) -> bool:
    """A single layer of torch's has nothing inside that could keep its mode."""
    made = [each for each in module.definitions(owner) if isinstance(each, ast.Call)]
    names = [(module.qualify(each.func) or "") for each in made]
    return bool(names) and all(
        each.startswith("torch.nn.") and not each.endswith(("Sequential", "List", "Dict")) for each in names
    )
