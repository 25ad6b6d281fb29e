# SPDX-License-Identifier: Apache-2.0
"""`net = Net().load_state_dict(...)`."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.module import SourceModule


class LoadResultUsedAsModel(SourceCheck):
    """The result of load_state_dict is stored and used as the model.

    Why: it is a list of missing and unexpected keys; the first use raises.

    Bad:
        net = net.load_state_dict(torch.load("w.pt", map_location="cpu"))  # here
        pred = net(x)

    Good:
        net.load_state_dict(torch.load("w.pt", map_location="cpu"))
        pred = net(x)

    Fix: call it in a line of its own.

    Evidence: bed A: 4 true, 0 false.
    """

    code = "SAVE002"
    words = ("load_state_dict",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report an assignment of it to a name that is called, or whose module methods are."""
        for call in module.method_calls("load_state_dict"):
            statement = module.parents[call]
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                name = statement.targets[0].id
                used = any(
                    (isinstance(node.func, ast.Name) and node.func.id == name)
                    or (
                        isinstance(node.func, ast.Attribute)
                        and ast.unparse(node.func.value) == name
                        and node.func.attr in ("eval", "train", "to", "cuda", "parameters")
                    )
                    for node in module.all(ast.Call)
                    if node.lineno > call.lineno
                )
                if used:
                    yield At(call, f"{name!r} is the list of missing keys from here on, not the model.")
