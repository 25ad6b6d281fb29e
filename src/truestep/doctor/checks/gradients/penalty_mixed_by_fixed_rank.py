# SPDX-License-Identifier: Apache-2.0
"""A gradient penalty written for images only."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import QUESTION, At, SourceCheck
from truestep.doctor.library.operations import operations
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import last_part
from truestep.doctor.source.uses import names_read

_SIZED = operations(shape="sized other turned")


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
        """Ask about torch.rand(n, 1, 1, 1) in a penalty of a program that shows no images."""
        for call in module.calls("torch.rand"):
            function = module.scope(call)
            ones = [isinstance(each, ast.Constant) and each.value == 1 for each in call.args[1:]]
            if not (isinstance(function, ast.FunctionDef) and len(call.args) == 4 and all(ones)):
                continue
            differentiates = any(
                module.scope(each) is function for each in module.calls("torch.autograd.grad")
            )
            given = {each.arg for each in function.args.args}
            if differentiates and names_read(call.args[0]) & given and not module.program.answer(_has_images):
                text = "The weights have four axes; data of two would be mixed pair by pair."
                yield At(call, text, QUESTION)


def _has_images(files: list[SourceModule]) -> bool:
    """Tell a program with a layer of two dimensions, with sizes of four axes, or that asks for a third."""
    return any(_is_of_images(each) for file in files for each in file.all(ast.Call, ast.Subscript))


def _is_of_images(node: ast.AST) -> bool:
    match node:
        case ast.Subscript(value=ast.Attribute(attr="shape"), slice=ast.Constant(value=2 | 3)):
            return True
        case ast.Call(func=ast.Attribute(attr="size"), args=[ast.Constant(value=2 | 3)]):
            return True
        case ast.Call(func=func, args=[_, *rest]) if len(rest) > 2 or last_part(func) == "unflatten":
            is_sized = last_part(func) in _SIZED
            return is_sized and not all(isinstance(each, ast.Constant) and each.value == 1 for each in rest)
        case ast.Call(func=func):
            return last_part(func).endswith("2d")
    return False
