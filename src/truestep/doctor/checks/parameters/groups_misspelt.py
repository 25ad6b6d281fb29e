# SPDX-License-Identifier: Apache-2.0
"""`optimizer.params_groups`."""

import ast
import difflib
from collections.abc import Iterator
from functools import cache
from typing import Any

from truestep.doctor.check import BUG, RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.rewriting import Edits, replaced, text_of
from truestep.doctor.source.values import value_origins

_KNOWN = ("param_groups", "zero_grad", "state_dict", "load_state_dict", "add_param_group")
_OTHERS = ("local_state_dict", "consolidate_state_dict")  # of optimizers that are divided over ranks


class GroupsMisspelt(SourceCheck):
    """An attribute of an optimizer is misspelt.

    Why: AttributeError at the line that sets the learning rate, or an attribute that nothing reads.

    Bad:
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        opt.params_groups[0]["lr"] = 0.01  # here

    Good:
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        opt.param_groups[0]["lr"] = 0.01

    Fix: param_groups.
    """

    code = "PARAM036"
    words = ("group", "grad", "state")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a name of an optimizer that is nearly one of torch's, and that the program gives to nothing."""
        for node in module.all(ast.Attribute):
            if node.attr in (*_KNOWN, *_OTHERS) or node.attr.startswith("_") or not _nearest(node.attr):
                continue
            if module.kind(node.value) == "optimizer" and not _is_defined(module, node.attr):
                text = f"An optimizer has no {node.attr!r}; it has {_nearest(node.attr)!r}."
                yield At(node, text, BUG if _is_made_here(module, node.value) else RISK)

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Write torch's name."""
        return [replaced(module, node, f"{text_of(module, node.value)}.{_nearest(node.attr)}")]


def _is_made_here(module: SourceModule, node: ast.expr) -> bool:
    """Tell an optimizer whose constructor is in sight; those of other libraries have methods of their own."""
    made = list(value_origins(module, node))
    return bool(made) and all(
        isinstance(each, ast.Call) and module.kind(each) == "optimizer" for each in made
    )


@cache
def _nearest(name: str) -> str | None:
    found = difflib.get_close_matches(name, _KNOWN, 1, 0.9)
    return found[0] if found else None


def _is_defined(module: SourceModule, name: str) -> bool:
    functions = any(each.name == name for file in module.linked for each in file.functions)
    return (
        functions
        or name in module.index.written
        or any(name in each for each in module.index.attributes.values())
    )
