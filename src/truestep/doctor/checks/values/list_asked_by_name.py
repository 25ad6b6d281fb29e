# SPDX-License-Identifier: Apache-2.0
"""A list that is asked for a key."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import is_none

_LISTS = ast.List | ast.ListComp | ast.Tuple


class ListAskedByName(SourceCheck):
    """A list or tuple is given a key, or asked for one, as if it were a dict.

    Why: Python stops there with a TypeError, on the first run that comes this way.

    Bad:
        groups = [{"params": net.parameters(), "lr": 0.1}]
        groups["weight_decay"] = 0.01  # here
        opt = torch.optim.AdamW(groups)

    Good:
        groups = [{"params": net.parameters(), "lr": 0.1}]
        groups[0]["weight_decay"] = 0.01
        opt = torch.optim.AdamW(groups)

    Fix: the key of the dict within, `groups[0]["weight_decay"]`, or an argument of its own.
    """

    code = "VALUE015"

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a text as the index of what is a list on every way."""
        if "torch" not in module.text:
            return
        for node in module.all(ast.Subscript):
            key = node.slice
            if not (isinstance(key, ast.Constant) and isinstance(key.value, str)):
                continue
            bindings = module.resolver.reaching(node.value) if isinstance(node.value, ast.Name) else []
            values = [each.value if each.how == "assign" else None for each in bindings]
            values = module.definitions(node.value) if isinstance(node.value, ast.Attribute) else values
            known = [each for each in values if each is None or not is_none(each)]
            if known and all(isinstance(each, _LISTS) for each in known):
                yield At(node, f"{ast.unparse(node.value)!r} is a list: it has no key {key.value!r}.")
