# SPDX-License-Identifier: Apache-2.0
"""A tensor attribute that .to() misses."""

import ast
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import ADVICE, At, SourceCheck
from truestep.doctor.library.operations import operations
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import walk
from truestep.doctor.source.rewriting import Edits, SourceRewriteError, node_text, replace_node
from truestep.doctor.source.value_origins import argument, constant, literal, resolve_expression

MAKERS = {f"torch.{name}" for name in operations(numbers="drawn filled copied")}
_DRAWS = {f"torch.{name}" for name in operations(numbers="drawn")}
_MASKS = {
    f"torch.nn.{each}.generate_square_subsequent_mask" for each in ("Transformer", "modules.Transformer")
}
_SAME = operations(numbers="kept itself home moved rounded whole indices") - operations(graph="left")
_WRAPS = ("torch.nn.Parameter", "torch.nn.parameter.Parameter", "torch.autograd.Variable")
_PLACED = operations(numbers="moved measured")  # asked of where it is used: its author knows


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

    Evidence: corpus, 186 repositories, beds A, C, D, E, G, I, K, N, Q: 11 true, 22 debatable, 9 false.
    """

    code = "PARAM002"
    words = ("Module",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report an attribute made in __init__ and read in another method, unless it is moved by hand."""
        for owner in module.kinds.classes_of("module"):
            buffers = _buffer_names(module, owner)
            for name, bindings in module.classes.attributes(owner).items():
                if (
                    len(bindings) == 1
                    and name not in buffers
                    and (value := bindings[0].value) is not None
                    and self._is_tensor(module, value)
                    and not _is_scalar_tensor(module, value)
                ):
                    node, scope = bindings[0].node, module.scope(bindings[0].node)
                    if getattr(scope, "name", "") == "__init__" and self._is_used_without_move(
                        module, owner, name, scope
                    ):
                        text = f"self.{name} is a plain tensor: .to() and state_dict() miss it."
                        yield At(node, text, ADVICE)

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Register it as a buffer."""
        if not (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute)):
            raise SourceRewriteError
        name, value = node.targets[0].attr, node_text(module, node.value)
        return [replace_node(module, node, f'self.register_buffer("{name}", {value})')]

    def _is_tensor(self, module: SourceModule, value: ast.expr) -> bool:
        """Tell what torch makes, be it moved, reshaped or computed with before it is kept."""
        if isinstance(value, ast.BinOp):
            return any(self._is_tensor(module, each) for each in (value.left, value.right))
        if not isinstance(value, ast.Call):
            return False
        if isinstance(value.func, ast.Attribute) and value.func.attr in _SAME:
            return self._is_tensor(module, value.func.value)
        trained = literal(module, argument(value, None, "requires_grad"))
        made = module.qualify(value.func) in MAKERS | _MASKS
        return made and trained is not True and argument(value, None, "device") is None

    def _is_used_without_move(
        self, module: SourceModule, owner: ast.ClassDef, name: str, home: ast.AST
    ) -> bool:
        """Used in a method as it is: `self.scale.to(x)` says that its author knows."""
        uses = [
            node
            for node in walk(owner)
            if isinstance(node, ast.Attribute) and ast.unparse(node) == f"self.{name}"
        ]
        reads = [node for node in uses if isinstance(node.ctx, ast.Load) and module.scope(node) is not home]
        moved = any(attr in _PLACED for node in reads for attr in _chained_attribute_names(module, node))
        alone = sum(isinstance(node, ast.FunctionDef) for node in owner.body) == 1  # nothing here reads it
        return (
            (bool(reads) or alone)
            and not moved
            and not self._is_only_used_as_index(module, owner, name, reads)
        )

    def _is_only_used_as_index(
        self, module: SourceModule, owner: ast.ClassDef, name: str, reads: list[ast.Attribute]
    ) -> bool:
        """Tell rows or a mask that only select, which may lie on the CPU; drawn ones have to be saved all the same."""
        made = [
            part
            for each in module.classes.attributes(owner)[name]
            if each.value is not None
            for part in walk(each.value)
        ]
        drawn = any(isinstance(each, ast.Call) and module.qualify(each.func) in _DRAWS for each in made)
        return bool(reads) and not drawn and all(_is_used_as_index(module, each) for each in reads)


def _is_used_as_index(module: SourceModule, node: ast.expr, depth: int = 0) -> bool:
    """Tell i of `x[i]` and `x[:, i]`, be it by a name of its own."""
    above = module.parents[node]
    if isinstance(above, ast.Tuple):
        node, above = above, module.parents[above]
    if isinstance(above, ast.Subscript):
        return above.slice is node
    name = above.targets[0] if isinstance(above, ast.Assign) and above.value is node else None
    reads = module.reads(name.id) if isinstance(name, ast.Name) else []
    own = [each for each in reads if module.scope(each) is module.scope(node)]
    return bool(own) and not depth and all(_is_used_as_index(module, each, depth + 1) for each in own)


def _chained_attribute_names(module: SourceModule, node: ast.expr) -> Iterator[str]:
    """Yield what is asked of a value, one after the other: `x.repeat(2).to(device)`, `nn.Parameter(x).to(device)`."""
    above = module.parents[node]
    while (
        isinstance(above, ast.Attribute)
        or (isinstance(above, ast.Subscript) and above.value is node)
        or (isinstance(above, ast.Call) and (above.func is node or module.qualify(above.func) in _WRAPS))
    ):
        if isinstance(above, ast.Attribute):
            yield above.attr
        node, above = above, module.parents[above]


def _is_scalar_tensor(module: SourceModule, value: ast.expr) -> bool:
    """Tell `torch.tensor(0.5)`: a tensor without axes goes with those of any device."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _SAME:
        value = value.func.value
    if not isinstance(value, ast.Call) or module.qualify(value.func) not in (
        "torch.tensor",
        "torch.as_tensor",
    ):
        return False
    given = resolve_expression(module, argument(value, 0, "data"))
    if isinstance(given, ast.BinOp):
        return constant(given.left) is not None or constant(given.right) is not None
    return isinstance(constant(given), (int, float))


def _buffer_names(module: SourceModule, owner: ast.ClassDef) -> set[object]:
    """Return the names of buffers: a tensor that is assigned to one stays a buffer."""
    calls = module.inside(owner, ast.Call)
    mine = [
        each for each in calls if isinstance(each.func, ast.Attribute) and each.func.attr == "register_buffer"
    ]
    return {literal(module, argument(each, 0, "name")) for each in mine}
