# SPDX-License-Identifier: Apache-2.0
"""`self.scale = nn.Parameter(...).to(device)`."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import ADVICE, RISK, At, SourceCheck
from truestep.doctor.library.operations import operations
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.tensors import moved_already
from truestep.doctor.source.values import argument, literal

_MOVES = operations(numbers="moved rounded")


class ParameterMovedBeforeRegistered(SourceCheck):
    """A parameter is moved before the module gets it.

    Why: on another device the result is a plain tensor: parameters() and state_dict() miss it. On the CPU all is well.

    Bad:
        class Scale(nn.Module):
            def __init__(self, device):
                super().__init__()
                self.scale = nn.Parameter(torch.ones(3), requires_grad=False).to(device)  # here

            def forward(self, x):
                return x * self.scale

    Good:
        class Scale(nn.Module):
            def __init__(self, device):
                super().__init__()
                self.scale = nn.Parameter(torch.ones(3).to(device), requires_grad=False)

            def forward(self, x):
                return x * self.scale

    Fix: move the tensor inside of nn.Parameter(...), or the whole module afterwards.
    """

    code = "PARAM037"
    words = ("Parameter",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report such an attribute of a module; one that asks for gradients is GRAD013."""
        for call in module.calls("torch.nn.Parameter"):
            method = module.parents.get(call)
            move = (
                module.parents.get(method)
                if isinstance(method, ast.Attribute) and method.attr in _MOVES
                else None
            )
            node = module.parents.get(move) if isinstance(move, ast.Call) else None
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
                if isinstance(move, ast.Call) and moved_already(move, call):
                    continue
                frozen = literal(module, argument(call, 1, "requires_grad")) is False
                owner = module.enclosing(node, ast.ClassDef)
                if frozen and owner is not None and module.class_kind(owner) == "module":
                    text = "The moved tensor is no Parameter: the module does not register it."
                    yield At(node, text, RISK if _is_changed(module, owner, node.targets[0]) else ADVICE)


def _is_changed(module: SourceModule, owner: ast.ClassDef, target: ast.Attribute) -> bool:
    """Tell a value that moves, and so belongs into a checkpoint; a constant is made again with the model."""
    written: list[ast.expr] = [each.target for each in module.inside(owner, ast.AugAssign)]
    written += [
        each for node in module.inside(owner, ast.Assign) for each in node.targets if each is not target
    ]
    methods = [each.func for each in module.inside(owner, ast.Call) if isinstance(each.func, ast.Attribute)]
    written += [each.value for each in methods if each.attr.endswith("_")]
    place = ast.unparse(target)
    return any(ast.unparse(each).removesuffix(".data") == place for each in written)
