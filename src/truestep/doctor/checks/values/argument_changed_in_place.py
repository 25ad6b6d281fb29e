# SPDX-License-Identifier: Apache-2.0
"""A function that changes what it is given, while it gives back something else."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Function, names_in, walk

_IN_PLACE = (
    "fill_", "masked_fill_", "zero_", "clamp_", "add_", "sub_", "mul_", "div_", "index_fill_", "scatter_", "copy_",
)  # fmt: skip


class ArgumentChangedInPlace(SourceCheck):
    """A loop gives a function overlapping slices of one tensor, and the function fills its argument and returns another.

    Why: a slice is a view: what the function writes stays in the tensor, and the next slices are read with it.

    Bad:
        def mask_until_end(ended):
            first = int(ended.argmax())
            ended[first:].fill_(1)
            return 1 - ended

        ended = torch.zeros(10)
        masks = []
        for t in range(6):
            masks.append(mask_until_end(ended[t:t + 4]))  # here

    Good:
        def mask_until_end(ended):
            first = int(ended.argmax())
            ended = ended.clone()
            ended[first:].fill_(1)
            return 1 - ended

        ended = torch.zeros(10)
        masks = []
        for t in range(6):
            masks.append(mask_until_end(ended[t:t + 4]))

    Fix: change a clone(), or write the operation without the underscore.
    """

    code = "VALUE043"
    words = ("_(",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a call in a loop whose argument is a slice with both ends moving, of a function that fills that parameter."""
        for call in module.all(ast.Call):
            loop = module.loop(call)
            if loop is None or not call.args or isinstance(module.parents[call], ast.Expr):
                continue
            for position, given in enumerate(call.args):
                if isinstance(given, ast.Subscript) and _overlaps(module, given):
                    function = module.target(call)
                    if function is not None and _fills(module, function, position):
                        yield At(
                            call,
                            f"{ast.unparse(call.func)} writes into this slice, and the next one overlaps it.",
                            RISK,
                        )


def _overlaps(module: SourceModule, node: ast.Subscript) -> bool:
    """Tell `x[t:t + depth]`, also behind an index, in a loop over t that does not make x."""
    loop = module.loop(node)
    if not isinstance(loop, ast.For) or not isinstance(node.value, ast.Name):
        return False
    if isinstance(loop.iter, ast.Call) and len(loop.iter.args) > 2:  # it goes in strides
        return False
    if any(loop in module.ancestors(each.node) for each in module.bindings(node.value)):
        return False
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    counted = set(names_in(loop.target))
    return any(isinstance(part, ast.Slice) and _moves(part, counted) for part in parts)


def _moves(part: ast.Slice, counted: set[str]) -> bool:
    """Tell a slice both ends of which go on by one with the loop."""
    if part.lower is None or part.upper is None:
        return False
    if any(isinstance(each, ast.Mult) for side in (part.lower, part.upper) for each in ast.walk(side)):
        return False
    return bool(counted & set(names_in(part.lower)) & set(names_in(part.upper)))


def _fills(module: SourceModule, function: Function, position: int) -> bool:
    """Tell whether a function writes into a parameter that it neither replaces nor gives back."""
    if isinstance(function, ast.Lambda) or function.name.endswith("_"):
        return False
    names = [each.arg for each in function.args.args]
    names = names[1:] if names[:1] in (["self"], ["cls"]) else names
    if position >= len(names):
        return False
    name, home = names[position], module.home(function)
    if any(isinstance(each.value, ast.Name) and each.value.id == name for each in home.returns(function)):
        return False
    bound = home.index.names[function].bindings[name]
    if len(bound) > 1:
        return False
    return any(_writes(each, name) for each in walk(function))


def _writes(node: ast.AST, name: str) -> bool:
    """Tell `x[...].fill_(1)`, `x.clamp_(0)`, and `x[...] = 1`."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
        return isinstance(node.value, ast.Name) and node.value.id == name
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _IN_PLACE:
        inner = node.func.value
        inner = inner.value if isinstance(inner, ast.Subscript) else inner
        return isinstance(inner, ast.Name) and inner.id == name
    return False
