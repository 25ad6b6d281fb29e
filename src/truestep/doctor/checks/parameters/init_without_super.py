# SPDX-License-Identifier: Apache-2.0
"""A module that never calls super().__init__()."""

import ast
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import walk
from truestep.doctor.source.rewriting import Edits, before


class InitWithoutSuper(SourceCheck):
    """A module's __init__ sets layers without calling super().__init__().

    Why: torch raises AttributeError at the first layer: there is nowhere to register it.

    Bad:
        class Net(nn.Module):
            def __init__(self):  # here
                self.head = nn.Linear(3, 1)

    Good:
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.head = nn.Linear(3, 1)

    Fix: call super().__init__() first.

    Evidence: bed C: 1 true, 0 false; bed E: 2 true, 0 false; bed F: 1 true, 0 false; bed H: 1 true, 0 false;
    186 repositories: 1 true, 1 debatable, 0 false.
    """

    code = "PARAM004"
    words = ("__init__",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report an __init__ of a direct subclass of nn.Module in which nothing calls another __init__."""
        for owner in module.kinds.classes_of("module"):
            direct = len(owner.bases) == 1 and module.qualify(owner.bases[0]) == "torch.nn.Module"
            made = module.classes.method(owner, "__init__")
            if direct and made in owner.body and made is not None and not isinstance(made, ast.Lambda):
                calls = [node.func for node in walk(made) if isinstance(node, ast.Call)]
                if not any(
                    isinstance(each, ast.Attribute) and each.attr in ("__init__", "__setattr__")
                    for each in calls
                ):
                    sets = any(
                        isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
                        for node in walk(made)
                    )
                    if sets:
                        yield At(made, f"{owner.name}.__init__ never calls super().__init__().")

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Call it first."""
        body = node.body[1:] if ast.get_docstring(node) is not None else node.body
        return [before(module, body[0], "super().__init__()")]
