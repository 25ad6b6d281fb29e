# SPDX-License-Identifier: Apache-2.0
"""Axes exchanged with view."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck, Unsure
from truestep.doctor.source.batch_counts import sizes_written_in_call
from truestep.doctor.source.memoized_walk import walk_each_once
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import is_none, method_of
from truestep.doctor.source.row_column_shapes import KEEP_SHAPE
from truestep.doctor.source.value_origins import (
    argument,
    constant,
    is_call_of,
    last_operations,
    literal,
    value_origins,
)

_NORM = re.compile(r"\w+norm(\dd)?$")  # a layer: `norm` by itself is a length
MAX_STEPS = 12  # from a value back to what its shape comes from


class ViewInsteadOfPermute(SourceCheck):
    """view or reshape is used to exchange axes.

    Why: it keeps the order of the numbers in memory and only cuts it elsewhere: the image is scrambled.

    Bad:
        chw = img.view(3, img.shape[0], img.shape[1])  # here

    Good:
        chw = img.permute(2, 0, 1)

    Fix: permute or transpose, then .contiguous() where a view is needed.

    Evidence: graykode/nlp-tutorial d05e31ec 4-3.Bi-LSTM(Attention)/Bi-LSTM(Attention).py:21; beds R, X, Y: 3
    true, 8 false.
    """

    code = "DATA006"
    words = ("view", "reshape")
    shows_as = ("DATA015",)

    def read(self, module: SourceModule) -> Iterator[At | Unsure]:
        """Report a view of x whose sizes are x's own, in another order."""
        for call in module.method_calls("view", "reshape"):
            assert isinstance(call.func, ast.Attribute)
            axes = [_axis_of_size(module, each, call.func.value) for each in call.args]
            if len(call.args) >= 2 and (
                _has_exchanged_axes(call, axes) or _is_wrong_axis_split(module, call, call.func.value, axes)
            ):
                base = ast.unparse(call.func.value)
                if _can_have_axis_of_size_one(module, call.func.value):
                    yield Unsure(
                        call, "an axis of it may have the size 1: it is exchanged by reshape as well"
                    )
                    continue
                text = f"The axes of {base} are exchanged with {call.func.attr}: its numbers are scrambled."
                # what left torch may go back to an order that a file was written in, and one feature has no order
                yield At(call, text, RISK)


def _can_have_axis_of_size_one(module: SourceModule, base: ast.expr) -> bool:
    """Tell what was made with an axis of size 1, or is a sum with such a value, past what keeps the shape."""

    def sources(node: ast.expr) -> list[ast.expr]:
        match node:
            case ast.Name():
                return [each for each in module.definitions(node) if each is not None]
            case ast.BinOp():
                return [node.left, node.right]
            case ast.Call(func=ast.Attribute(value=receiver, attr=name)) if name in KEEP_SHAPE:
                return [receiver, *node.args[:1]]
            case ast.Call(args=[given, *_]) if _keeps_shape(module, node):  # `self.dropout(x)`
                return [given]
        return []

    return any(_gives_axis_of_one(module, each) for each in walk_each_once([base], sources, MAX_STEPS))


def _keeps_shape(module: SourceModule, call: ast.Call) -> bool:
    """Tell a layer that is applied and gives what it is given, changed number by number: `self.dropout(x)`."""
    made = last_operations(module, call)
    return bool(made) and all(
        each is not None and (each in KEEP_SHAPE or _NORM.search(each)) for each in made
    )


def _gives_axis_of_one(module: SourceModule, node: ast.expr) -> bool:
    """Tell `nn.Linear(8, 1)(x)`, `x.unsqueeze(1)`, `x[:, None]`, `x.view(-1, 8, 1)` and `torch.ones(4, 8, 1)`."""
    if isinstance(node, ast.Subscript):
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return any(is_none(each) for each in parts)
    if not isinstance(node, ast.Call):
        return False
    layers = [each for each in [node.func, *value_origins(module, node.func)] if isinstance(each, ast.Call)]
    if any(is_call_of(module, each, "torch.nn.Linear") for each in layers):
        return any(literal(module, argument(each, 1, "out_features")) == 1 for each in layers)
    sizes = [
        part
        for each in node.args
        for part in (each.elts if isinstance(each, (ast.Tuple, ast.List)) else [each])
    ]
    is_sized = (
        method_of(node) in ("view", "reshape", "expand") or sizes_written_in_call(module, node) is not None
    )
    return method_of(node) == "unsqueeze" or (is_sized and any(constant(each) == 1 for each in sizes))


def _has_exchanged_axes(call: ast.Call, axes: list[tuple[int, int] | None]) -> bool:
    """Tell sizes in another order, or flat rows of what is not the last axis."""
    known = [(place, axis[0]) for place, axis in enumerate(axes) if axis is not None]
    order = [axis for _, axis in known]
    last = {axis[1] - 1 for axis in axes if axis is not None and axis[1]}
    if len(axes) == 2:
        return constant(call.args[0]) == -1 and len(order) == 1 and bool(last) and order[0] not in (0, *last)
    if len(known) < 2 or all(place == axis for place, axis in known):
        return False
    moved_by_one = all(place != axis for place, axis in known) and len(known) == len(call.args) - 1
    # 1 is a new axis before the others
    is_image = moved_by_one and constant(call.args[0]) in (3, 4)
    return is_image or order != sorted(order)


def _is_wrong_axis_split(
    module: SourceModule, call: ast.Call, base: ast.expr, axes: list[tuple[int, int] | None]
) -> bool:
    """Tell `x.view(b, heads, t, d // heads)` of x with axes (b, t, d): the heads are cut out of the times."""
    for each in call.args:
        if isinstance(each, ast.BinOp) and isinstance(each.op, ast.FloorDiv):
            split = _axis_of_size(module, each.left, base)
            parts = [
                place for place, one in enumerate(call.args) if ast.unparse(one) == ast.unparse(each.right)
            ]
            later = [axis for axis in axes[parts[0] :] if axis is not None] if parts else []
            if split is not None and any(axis[0] < split[0] for axis in later):
                return True
    return False


def _axis_of_size(module: SourceModule, node: ast.expr, base: ast.expr) -> tuple[int, int] | None:
    """Return which of x's own axes a size is, and how many x has, 0 where that is not seen."""
    text = ast.unparse(node)
    for start in (f"{ast.unparse(base)}.shape[", f"{ast.unparse(base)}.size("):
        if text.startswith(start) and text[len(start) : -1].isdigit():
            return int(text[len(start) : -1]), 0
    is_named = isinstance(node, ast.Name) and isinstance(base, ast.Name)
    return _axis_of_unpacked_size(module, node, base) if is_named else None  # type: ignore[arg-type]


def _axis_of_unpacked_size(module: SourceModule, name: ast.Name, base: ast.Name) -> tuple[int, int] | None:
    """Return it of t for `b, t, c = x.shape`, where x is still what it was then."""
    bindings = module.resolver.reaching(name)
    if len(bindings) != 1 or bindings[0].how != "unpack" or len(bindings[0].position) != 1:
        return None
    measured = bindings[0].value
    measured = measured.func if isinstance(measured, ast.Call) and not measured.args else measured
    if not isinstance(measured, ast.Attribute) or measured.attr not in ("shape", "size"):
        return None
    if not isinstance(measured.value, ast.Name) or measured.value.id != base.id:
        return None
    then, now = (module.resolver.reaching(each) for each in (measured.value, base))
    statement = module.resolver.statement(bindings[0].node)
    names = statement.targets[0] if isinstance(statement, ast.Assign) else None
    num_axes = len(names.elts) if isinstance(names, ast.Tuple) else 0
    same = {id(each) for each in then} == {id(each) for each in now}
    return (bindings[0].position[0], num_axes) if same else None
