# SPDX-License-Identifier: Apache-2.0
"""A gradient penalty written for images only."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import QUESTION, RISK, At, SourceCheck
from truestep.doctor.source.axes import num_axes
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted, walk
from truestep.doctor.source.uses import names_read, names_stored
from truestep.doctor.source.values import constant

_AXES = 4


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
    return any(num_axes(module, each) not in (None, _AXES) for each in _mixed(module, mix, function))


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
    if num_axes(module, value) == _AXES:
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
