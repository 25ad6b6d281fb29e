# SPDX-License-Identifier: Apache-2.0
"""A mean that sums one part of the entries and counts the other."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.library.operations import operations
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted_name
from truestep.doctor.source.value_origins import argument, calls_behind, constant

_SUMS = operations(numbers="kept home moved averaged") | {"reduce", "rearrange"}
_COUNTS = ("sum", "count_nonzero")
_FILLS = ("masked_fill", "masked_fill_")
_MOST_STEPS = 12


class MeanOfOtherPart(SourceCheck):
    """A loss is set to 0 where a mask holds, and its sum is divided by how many entries the mask holds.

    Why: what was to be left out counts alone, and what was to count is 0; a mask that means the entries to keep is
    turned round by `masked_fill`, which fills where it holds.

    Bad:
        mask = y > 0
        losses = F.cross_entropy(net(x), y, reduction="none")
        losses = losses.masked_fill(mask, 0.0)
        loss = losses.sum() / mask.sum()  # here

    Good:
        mask = y > 0
        losses = F.cross_entropy(net(x), y, reduction="none")
        losses = losses.masked_fill(~mask, 0.0)
        loss = losses.sum() / mask.sum()

    Fix: fill where the mask does not hold, `masked_fill(~mask, 0.0)`, or multiply by the mask.

    Evidence: lucidrains/voicebox-pytorch 0af43d09 voicebox_pytorch/voicebox_pytorch.py:548; bed U: 0 true, 1 false.
    """

    code = "LOSS060"
    is_preview = True
    words = ("masked_fill", "where")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a quotient whose sum leaves out the entries that its divisor counts."""
        for node in module.all(ast.BinOp):
            if (
                isinstance(node.op, ast.Div)
                and (left_out := _mask_of_zeroed_entries(module, node.left)) is not None
            ):
                if left_out in set(_masks_counted(module, node.right)):
                    name = left_out[0]
                    counted = f"those of {name!r}" if left_out[1] else f"those outside of {name!r}"
                    text = f"The sum leaves out {counted}, and is divided by their number: is the mask the wrong way round?"
                    yield At(node, text, RISK)


def _mask_of_zeroed_entries(module: SourceModule, node: ast.expr) -> tuple[str, bool] | None:
    """Return the mask, and whether it holds there, of the entries that a sum was made without."""
    for _ in range(_MOST_STEPS):
        if isinstance(node, ast.Name):
            values = [each for each in module.definitions(node) if each is not None]
            if len(values) != 1:
                return None
            node = values[0]
        if not isinstance(node, ast.Call):
            return None
        name, is_method = _called_name(node), isinstance(node.func, ast.Attribute)
        if name in _FILLS and constant(argument(node, 1, "value")) == 0:
            return _mask_name_and_sign(argument(node, 0, "mask"))
        if name == "where" and len(node.args) > 1 and constant(node.args[1]) == 0:
            return _mask_name_and_sign(node.args[0])
        if name not in _SUMS:
            return None
        is_of_library = isinstance(node.func, ast.Attribute) and dotted_name(node.func.value) in (
            "torch",
            "F",
            "einops",
        )
        on_itself = is_method and not is_of_library
        following = (
            node.func.value
            if isinstance(node.func, ast.Attribute) and on_itself
            else argument(node, 0, "input")
        )
        if following is None:
            return None
        node = following
    return None


def _masks_counted(module: SourceModule, node: ast.expr) -> Iterator[tuple[str, bool]]:
    """Yield what a divisor counts the entries of."""
    for call in (*calls_behind(module, node), node):
        above = module.home(call).parents[call]
        while isinstance(above, (ast.Attribute, ast.Call)):
            above = module.home(call).parents[above]
        if isinstance(above, ast.BinOp) and isinstance(above.op, ast.Sub):
            continue  # `len(target) - ignored.sum().item()` counts the others
        if (
            isinstance(call, ast.Call)
            and _called_name(call) in _COUNTS
            and isinstance(call.func, ast.Attribute)
        ):
            given = call.func.value if dotted_name(call.func.value) != "torch" else argument(call, 0, "input")
            if (part := _mask_name_and_sign(given)) is not None:
                yield part


def _mask_name_and_sign(mask: ast.expr | None) -> tuple[str, bool] | None:
    """Return the name of a mask, and whether what is meant is where it holds."""
    if isinstance(mask, ast.UnaryOp) and isinstance(mask.op, (ast.Invert, ast.Not)):
        inner = _mask_name_and_sign(mask.operand)
        return None if inner is None else (inner[0], not inner[1])
    while isinstance(mask, ast.Call) and isinstance(mask.func, ast.Attribute):
        if mask.func.attr == "logical_not":
            return _mask_name_and_sign(ast.UnaryOp(ast.Invert(), mask.func.value))
        mask = mask.func.value
    while isinstance(mask, ast.Subscript):
        mask = mask.value
    name = dotted_name(mask) if mask is not None else None
    return None if name is None else (name, True)


def _called_name(call: ast.Call) -> str:
    """Return a function's or a method's name, whatever it is a method of."""
    return str(getattr(call.func, "attr", getattr(call.func, "id", "")))
