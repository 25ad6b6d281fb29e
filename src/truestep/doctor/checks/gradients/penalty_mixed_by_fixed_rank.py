# SPDX-License-Identifier: Apache-2.0
"""A gradient penalty written for images only."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.check import QUESTION, RISK, At, SourceCheck
from truestep.doctor.source.batches import sizes_of
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted, walk
from truestep.doctor.source.once import asked_once
from truestep.doctor.source.shapes import KEEP_SHAPE
from truestep.doctor.source.uses import names_read, names_stored
from truestep.doctor.source.values import constant, value_origins

_AXES = 4

_BY_LAYER = re.compile(r"^torch\.nn\.\w*(?:Conv|Norm|Pool)\w*?([123])d$")


class PenaltyMixedByFixedRank(SourceCheck):
    """A gradient penalty mixes with weights of shape (n, 1, 1, 1), whatever the data's shape is.

    Why: for real data of shape (n, d) this broadcasts to (n, 1, n, d): every pair is mixed, silently.

    Bad:
        def penalty(critic, real, fake):
            mix = torch.rand(len(real), 1, 1, 1)  # here
            z = (mix * real + (1 - mix) * fake.detach()).requires_grad_(True)
            s = critic(z)
            g = torch.autograd.grad(s, z, torch.ones_like(s), create_graph=True)[0]
            return ((g.flatten(1).norm(dim=1) - 1) ** 2).mean()

    Good:
        def penalty(critic, real, fake):
            mix = torch.rand(len(real), *[1] * (real.dim() - 1), device=real.device)
            z = (mix * real + (1 - mix) * fake.detach()).requires_grad_(True)
            s = critic(z)
            g = torch.autograd.grad(s, z, torch.ones_like(s), create_graph=True)[0]
            return ((g.flatten(1).norm(dim=1) - 1) ** 2).mean()

    Fix: torch.rand(len(real), *[1] * (real.dim() - 1), device=real.device), or truestep.gradient_penalty.

    Evidence: the plain form in snippet 3 of the notes.
    """

    code = "GRAD027"
    words = ("autograd",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report torch.rand(n, 1, 1, 1) mixed with a parameter that is not known to have four axes."""
        for call in module.calls("torch.rand"):
            function = module.scope(call)
            ones = [isinstance(each, ast.Constant) and each.value == 1 for each in call.args[1:]]
            if not (isinstance(function, ast.FunctionDef) and len(call.args) == 4 and all(ones)):
                continue
            differentiates = any(
                module.scope(each) is function for each in module.calls("torch.autograd.grad")
            )
            sized = any(
                isinstance(node, ast.Name) and self._is_parameter(function, node.id)
                for node in walk(call.args[0])
            )
            if differentiates and sized and not _is_mixed_with_images(module, call, function):
                known = _is_mixed_with_rows(module, call, function)
                text = "The weights have four axes; data of two would be mixed pair by pair."
                yield At(call, text, RISK if known else QUESTION)

    def _is_parameter(self, function: ast.FunctionDef, name: str) -> bool:
        return any(each.arg == name for each in function.args.args)


def _is_mixed_with_images(module: SourceModule, mix: ast.Call, function: ast.FunctionDef) -> bool:
    """Tell whether something that is mixed has four axes, or a net of two-dimensional layers is applied."""
    if any(_is_image(module, each, function) for each in _mixed(module, mix, function)):
        return True
    owners = [module.classes.of(call.func) for call in module.inside(function, ast.Call)]
    return any(owner is not None and _has_convolutions(module, owner) for owner in owners)


def _is_mixed_with_rows(module: SourceModule, mix: ast.Call, function: ast.FunctionDef) -> bool:
    """Tell whether something that is mixed is known to have another number of axes."""
    return any(_num_axes(module, each) not in (None, _AXES) for each in _mixed(module, mix, function))


def _mixed(module: SourceModule, mix: ast.Call, function: ast.FunctionDef) -> Iterator[ast.expr]:
    """Yield what the weights are multiplied with."""
    own = names_stored(module.statement(mix))
    for product in module.inside(function, ast.BinOp):
        if isinstance(product.op, ast.Mult):
            sides = [product.left, product.right]
            mixed = [
                each for each in sides if not (own & names_read(each)) and not isinstance(each, ast.Constant)
            ]
            if len(mixed) == 1:
                yield mixed[0]


def _is_image(module: SourceModule, value: ast.expr, function: ast.FunctionDef) -> bool:
    """Tell a tensor of four axes, or one whose third is asked for: `x.size(2)`."""
    if _num_axes(module, value) == _AXES:
        return True
    place = dotted(value)
    items = [
        each for each in module.inside(function, ast.Subscript) if dotted(each.value) == f"{place}.shape"
    ]
    calls = [each for each in module.inside(function, ast.Call) if dotted(each.func) == f"{place}.size"]
    asked = [
        constant(each)
        for each in [*(one.slice for one in items), *(part for one in calls for part in one.args)]
    ]
    return any(isinstance(each, int) and each > 1 for each in asked)


def _has_convolutions(module: SourceModule, owner: ast.ClassDef) -> bool:
    layers = [module.qualify(each.func) or "" for each in module.inside(owner, ast.Call)]
    return any(name.startswith("torch.nn.Conv") and name.endswith("2d") for name in layers)


@asked_once(None)
def _num_axes(module: SourceModule, node: ast.expr | None, depth: int = 0) -> int | None:
    """Return the number of axes of a tensor; None where it can't be told."""
    match node:
        case ast.Name() | ast.Attribute():
            return _by_name(module, node, depth)
        case ast.UnaryOp():
            return _num_axes(module, node.operand, depth + 1)
        case ast.Call():
            return _of_call(module, node, depth)
    return None


def _by_name(module: SourceModule, node: ast.Name | ast.Attribute, depth: int) -> int | None:
    if isinstance(node, ast.Name):
        if (taken := _by_its_shape(module, node)) is not None:
            return taken
    values = {_num_axes(module, each, depth + 1) for each in module.definitions(node)}
    return values.pop() if len(values) == 1 else None


def _by_its_shape(module: SourceModule, name: ast.Name) -> int | None:
    """`n, channels, height, width = x.shape`, in the same function."""
    for node in module.inside(module.scope(name), ast.Assign):
        target, value = node.targets[0], node.value
        if isinstance(value, ast.Call) and not value.args and isinstance(value.func, ast.Attribute):
            value = value.func if value.func.attr == "size" else value
        asked = isinstance(value, ast.Attribute) and value.attr in ("shape", "size")
        if asked and isinstance(value.value, ast.Name) and value.value.id == name.id:  # type: ignore[attr-defined]
            whole = isinstance(target, ast.Tuple) and not any(isinstance(e, ast.Starred) for e in target.elts)
            if whole and module.scope(node) is module.scope(name):
                return len(target.elts)  # type: ignore[attr-defined]
    return None


def _of_call(module: SourceModule, call: ast.Call, depth: int) -> int | None:
    sizes = sizes_of(module, call)
    if sizes is not None:
        return len(sizes)
    name = module.qualify(call.func) or ""
    if name.startswith("torch.") and name.endswith("_like") and call.args:
        return _num_axes(module, call.args[0], depth + 1)
    if isinstance(call.func, ast.Attribute) and not name:
        return _of_method(module, call, call.func, depth)
    layers = [each for each in value_origins(module, call.func) if isinstance(each, ast.Call)]
    found = {_BY_LAYER.match(module.qualify(each.func) or "") for each in layers}
    only = found.pop() if len(found) == 1 else None
    return int(only[1]) + 2 if only is not None else None


def _of_method(module: SourceModule, call: ast.Call, method: ast.Attribute, depth: int) -> int | None:
    args = call.args
    if len(args) == 1 and isinstance(args[0], (ast.Tuple, ast.List)):
        args = args[0].elts
    if any(isinstance(each, ast.Starred) for each in args):
        return None
    match method.attr:
        case "view" | "reshape" | "permute" | "expand" | "repeat":
            whole = len(args) > 1 or isinstance(constant(args[0]) if args else None, int)
            return len(args) if whole or args is not call.args else None
        case "expand_as" | "view_as" | "reshape_as" | "type_as" if args:
            return _num_axes(module, args[0], depth + 1)
        case "flatten":
            return 2 if constant(args[0]) == 1 and len(args) == 1 else None if args else 1
    inner = _num_axes(module, method.value, depth + 1)
    if inner is None:
        return None
    if method.attr == "unsqueeze":
        return inner + 1
    if method.attr == "unflatten" and len(call.args) == 2 and isinstance(call.args[1], (ast.Tuple, ast.List)):
        return inner + len(call.args[1].elts) - 1
    return inner if method.attr in KEEP_SHAPE or method.attr == "requires_grad_" else None
