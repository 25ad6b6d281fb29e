# SPDX-License-Identifier: Apache-2.0
"""A mask that is made, or comes with the batch, and masks nothing."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.losses import losses_of
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Function, walk
from truestep.doctor.source.uses import names_read

# what leaves examples, places or steps out
_MASKS = re.compile(
    r"(^|_)(masks?|valid|valids|padding|pad_mask|dones?|terminals?|terminated|not_done)(_|$)", re.IGNORECASE
)
_ANSWERS = ("masks", "mask", "pred_mask", "gt_mask", "mask_gt", "true_mask")  # what a segmentation is to find
_OPERATIONS = ast.BitAnd | ast.BitOr


class MaskNeverUsed(SourceCheck):
    """A mask is computed, or unpacked from a batch, in a function that computes a loss, and nothing reads it.

    Why: what it is to leave out counts: padding, invalid pixels, the value of a state after the last one.

    Bad:
        def loss_of(net, x, depth):
            valid = (depth > 0) & (depth < 80)  # here
            error = F.l1_loss(net(x), depth, reduction="none")
            return error.mean()

    Good:
        def loss_of(net, x, depth):
            valid = (depth > 0) & (depth < 80)
            error = F.l1_loss(net(x), depth, reduction="none")
            return error[valid].mean()

    Fix: use it, or delete the line.
    """

    code = "VALUE022"
    words = ("mask", "valid", "pad", "done", "termina")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a name that says what it leaves out, whose only use is that it is given a value."""
        if "torch" not in module.text:
            return
        computing = {module.scope(each) for each in losses_of(module)}
        for function in module.functions:
            if function.name.startswith("test") or _sees_all(function):
                continue
            read = names_read(function)
            trains = function in computing or _goes_backward(function)
            stores: list[ast.Assign | ast.For] = [
                *module.inside(function, ast.Assign),
                *module.inside(function, ast.For),
            ]
            for node in (each for each in stores if module.scope(each) is function):
                for name in _masks_in(node, trains):
                    if name not in read:
                        yield At(node, f"Nothing reads {name!r}: it leaves nothing out.", RISK)


def _masks_in(node: ast.Assign | ast.For, trains: bool) -> Iterator[str]:
    """Yield the masks that a statement makes, or unpacks where a loss is computed."""
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    if isinstance(target, ast.Name) and isinstance(node, ast.Assign):
        if _is_mask(target.id):
            taken = trains and target.id not in _ANSWERS and _is_taken_from_batch(node.value)
            if taken or _is_condition(node.value) or _makes_a_mask(node.value):
                yield target.id
    elif isinstance(target, ast.Tuple) and trains:
        for each in walk(target):
            if isinstance(each, ast.Name) and _is_mask(each.id) and each.id not in _ANSWERS:
                yield each.id


def _is_mask(name: str) -> bool:
    return bool(_MASKS.search(name)) and not name.startswith("_")


def _is_taken_from_batch(value: ast.expr) -> bool:
    """Tell `torch.cat(batch.mask)`: a call of what a batch holds under such a name."""
    return isinstance(value, ast.Call) and any(
        isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name) and _MASKS.search(each.attr)
        for part in value.args
        for each in walk(part)
    )


def _is_condition(value: ast.expr) -> bool:
    """Tell `(x > 0) & (x < 1)`, and a comparison of tensors, not of settings."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, _OPERATIONS):
        return True
    if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.Invert):
        return True
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        return value.func.attr in ("ne", "eq", "gt", "lt", "ge", "le")
    return isinstance(value, ast.Compare) and isinstance(value.ops[0], ast.Eq | ast.NotEq | ast.Lt | ast.Gt)


def _makes_a_mask(value: ast.expr) -> bool:
    """Tell a call whose name says that it makes a mask, be it moved to a device."""
    while isinstance(value, ast.Call):
        called = value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", "")
        if "mask" in called.lower() and "masked" not in called.lower():
            return True
        if not isinstance(value.func, ast.Attribute):
            return False
        value = value.func.value
    return False


def _goes_backward(function: Function) -> bool:
    return any(isinstance(each, ast.Attribute) and each.attr == "backward" for each in walk(function))


def _sees_all(function: Function) -> bool:
    return bool({"locals", "vars", "exec", "eval"} & names_read(function))
