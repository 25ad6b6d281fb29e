# SPDX-License-Identifier: Apache-2.0
"""A tensor attribute that .to() misses."""

import ast
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.library.operations import operations
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import walk
from truestep.doctor.source.rewriting import Edits, SourceRewriteError, replaced, text_of
from truestep.doctor.source.values import argument, literal

MAKERS = {f"torch.{name}" for name in operations(numbers="drawn filled copied")}
_SAME = operations(numbers="kept itself home moved rounded whole indices") - operations(graph="left")


class TensorNotRegistered(SourceCheck):
    """A module keeps a constant tensor as a plain attribute.

    Why: .to(device) leaves it behind (an error in forward on a GPU), and state_dict() does not save it.

    Bad:
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.scale = torch.ones(3)  # here

            def forward(self, x):
                return x * self.scale

    Good:
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("scale", torch.ones(3))

            def forward(self, x):
                return x * self.scale

    Fix: self.register_buffer("name", tensor) for constants, nn.Parameter(tensor) for what is trained.
    """

    code = "PARAM002"
    words = ("Module",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report an attribute made in __init__ and read in another method, unless it is moved by hand."""
        for owner in module.classes_of_kind("module"):
            buffers = _registered(module, owner)
            for name, bindings in module.attributes(owner).items():
                if (
                    len(bindings) == 1
                    and name not in buffers
                    and bindings[0].value is not None
                    and self._is_tensor(module, bindings[0].value)
                ):
                    node, scope = bindings[0].node, module.scope(bindings[0].node)
                    if getattr(scope, "name", "") == "__init__" and self._used(module, owner, name, scope):
                        yield At(
                            node, f"self.{name} is a plain tensor: .to() and state_dict() miss it.", RISK
                        )

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Register it as a buffer."""
        if not (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute)):
            raise SourceRewriteError
        name, value = node.targets[0].attr, text_of(module, node.value)
        return [replaced(module, node, f'self.register_buffer("{name}", {value})')]

    def _is_tensor(self, module: SourceModule, value: ast.expr) -> bool:
        """Tell what torch makes, be it moved, reshaped or computed with before it is kept."""
        if isinstance(value, ast.BinOp):
            return any(self._is_tensor(module, each) for each in (value.left, value.right))
        if not isinstance(value, ast.Call):
            return False
        if isinstance(value.func, ast.Attribute) and value.func.attr in _SAME:
            return self._is_tensor(module, value.func.value)
        trained = literal(module, argument(value, None, "requires_grad"))
        made = module.qualify(value.func) in MAKERS
        return made and trained is not True and argument(value, None, "device") is None

    def _used(self, module: SourceModule, owner: ast.ClassDef, name: str, home: ast.AST) -> bool:
        """Used in a method as it is: `self.scale.to(x)` says that its author knows."""
        uses = [
            node
            for node in walk(owner)
            if isinstance(node, ast.Attribute) and ast.unparse(node) == f"self.{name}"
        ]
        reads = [node for node in uses if isinstance(node.ctx, ast.Load) and module.scope(node) is not home]
        moved = any(
            isinstance(up := module.parents[node], ast.Attribute)
            and up.attr in ("to", "cuda", "type_as", "size", "shape")
            for node in reads
        )
        alone = sum(isinstance(node, ast.FunctionDef) for node in owner.body) == 1  # nothing here reads it
        return (bool(reads) or alone) and not moved


def _registered(module: SourceModule, owner: ast.ClassDef) -> set[object]:
    """Return the names of buffers: a tensor that is assigned to one stays a buffer."""
    calls = module.inside(owner, ast.Call)
    mine = [
        each for each in calls if isinstance(each.func, ast.Attribute) and each.func.attr == "register_buffer"
    ]
    return {literal(module, argument(each, 0, "name")) for each in mine}
