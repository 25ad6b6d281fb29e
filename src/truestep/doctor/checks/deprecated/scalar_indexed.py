# SPDX-License-Identifier: Apache-2.0
"""loss.data[0]."""

import ast
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import At, SourceCheck, Unsure
from truestep.doctor.library.operations import operations
from truestep.doctor.source.memoized_walk import asked_once
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import last_part, method_of, receiver_of
from truestep.doctor.source.rewriting import Edits, node_text, replace_node
from truestep.doctor.source.value_origins import constant, value_origins

_SIZED = operations(shape="sized counted")
_SAME_SHAPE = operations(shape="same broadcast")


class ScalarIndexed(SourceCheck):
    """A loss is read with .data[0].

    Why: a scalar has no index: IndexError.

    Bad:
        loss = F.cross_entropy(net(x), y)
        print(loss.data[0])  # here

    Good:
        loss = F.cross_entropy(net(x), y)
        print(loss.item())

    Fix: loss.item().

    Evidence: eriklindernoren/PyTorch-GAN 36d3c77e implementations/began/began.py:196; 186 repositories, beds E,
    F, G, H, I, K, L, M, N, O, P, Q, R, S, T, U, V, W, Y: 385 true, 5 debatable, 5 false.
    """

    code = "OLD008"
    gone_since = (0, 5)
    words = (".data[0]",)

    def read(self, module: SourceModule) -> Iterator[At | Unsure]:
        """Report it on names that are losses."""
        for node in module.all(ast.Subscript):
            index = node.slice.value if isinstance(node.slice, ast.Constant) else None
            if index == 0 and isinstance(node.value, ast.Attribute) and node.value.attr == "data":
                if "loss" not in ast.unparse(node.value.value).lower():
                    continue
                if _is_tensor_with_dimension(module, node.value.value):
                    continue
                if _is_from_other_library(module, node.value.value):
                    yield Unsure(node, "another library makes the loss: its shape is out of sight")
                else:
                    yield At(node, "A scalar can't be indexed: this raises IndexError.")

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Ask for the number."""
        return [replace_node(module, node, f"{node_text(module, node.value.value)}.item()")]


@asked_once(False)
def _is_tensor_with_dimension(module: SourceModule, loss: ast.expr, depth: int = 0) -> bool:
    """Tell a total that begins as `torch.zeros(1)`, whatever is added to it, and what is computed of rows of a tensor."""
    if isinstance(loss, ast.Subscript) and isinstance(loss.slice, ast.Tuple):
        return all(
            _can_index_several_items(module, each) for each in loss.slice.elts
        )  # rows at pairs of indices
    given = module.definitions(loss) if isinstance(loss, ast.Name) else []
    if any(
        isinstance(each, ast.Subscript) and _is_tensor_with_dimension(module, each, depth + 1)
        for each in given
    ):
        return True
    for value in [loss] if isinstance(loss, ast.BinOp) else value_origins(module, loss):
        match value:
            case ast.BinOp(left=left, right=right):
                parts = [left, right]
            case ast.Call(func=function, args=args):
                name = method_of(value) or last_part(function)
                if name in _SIZED or name.endswith("Tensor"):
                    return bool(args) and not _is_empty_shape(args[0])
                receiver = receiver_of(value)
                methods = [receiver] if receiver is not None and module.qualify(function) is None else []
                parts = [*methods, *args] if name == "Variable" or name in _SAME_SHAPE else []
            case ast.Subscript():
                parts = [value]
            case _:
                parts = []
        if any(_is_tensor_with_dimension(module, each, depth + 1) for each in parts):
            return True
    return False


def _can_index_several_items(module: SourceModule, index: ast.expr) -> bool:
    """Tell indices by a name, unless that is one place of a table: `rows = table[i, 0]`."""
    made = [each for each in module.definitions(index) if isinstance(each, ast.Subscript)]
    parts = [part for each in made for part in getattr(each.slice, "elts", [each.slice])]
    one = bool(parts) and all(not isinstance(each, ast.Slice) for each in parts)
    return isinstance(index, ast.Name) and not (
        one and any(isinstance(constant(each), int) for each in parts)
    )


def _is_empty_shape(size: ast.expr) -> bool:
    return isinstance(size, (ast.Tuple, ast.List)) and not size.elts


@asked_once(False)
def _is_from_other_library(module: SourceModule, loss: ast.expr, depth: int = 0) -> bool:
    """Tell whether a value is, or is computed from, what a library other than torch gives."""
    for value in value_origins(module, loss):
        if isinstance(value, ast.BinOp):
            if any(_is_from_other_library(module, each, depth + 1) for each in (value.left, value.right)):
                return True
        elif isinstance(value, ast.Call):
            results = module.functions.results(module.functions.target(value))
            for maker in (value, *value_origins(module, value.func)):
                if isinstance(maker, ast.Call):
                    if _is_other_library_call(module, maker):
                        return True
                    owner = module.classes.named(maker.func)
                    results += module.functions.results(module.classes.method(owner, "forward"))
            if any(_is_from_other_library(module, each, depth + 1) for each in results):
                return True
    return False


def _is_other_library_call(module: SourceModule, call: ast.Call) -> bool:
    home, dot, _ = (module.qualify(call.func) or "").partition(".")
    return bool(dot) and home != "torch"
