# SPDX-License-Identifier: Apache-2.0
"""Outputs collected with their graph in a hook."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import walk


class OutputsKeptWithGraph(SourceCheck):
    """A forward hook stores outputs without detach().

    Why: each stored output keeps the graph that made it.

    Bad:
        feats = []
        handle = net.fc.register_forward_hook(lambda m, i, o: feats.append(o))  # here

    Good:
        feats = []
        handle = net.fc.register_forward_hook(lambda m, i, o: feats.append(o.detach()))

    Fix: store o.detach(); remove the hook in a finally.
    """

    code = "MEM002"
    words = ("register_forward_hook",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a hook function that appends or stores its bare output."""
        for call in module.method_calls("register_forward_hook"):
            function = module.function_named(call.args[0]) if call.args else None
            parameters = [each.arg for each in function.args.args] if function is not None else []
            if function is not None and len(parameters) >= 3 and self._keeps(function, parameters[-1]):
                yield At(call, "The hook keeps the output with its graph.", RISK)

    def _keeps(self, function: ast.AST, output: str) -> bool:
        for node in walk(function):
            stored = (
                node.args[0]
                if isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "append"
                and node.args
                else None
            )
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript | ast.Attribute):
                stored = node.value
            if isinstance(stored, ast.Name) and stored.id == output:
                return True
        return False
