# SPDX-License-Identifier: Apache-2.0
"""A gradient penalty written for images only."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import walk


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
    """

    code = "GRAD027"
    words = ("autograd",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report torch.rand(n, 1, 1, 1) mixed with a parameter, in a function that differentiates."""
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
            if differentiates and sized:
                yield At(call, "The weights have four axes; data of two would be mixed pair by pair.", RISK)

    def _is_parameter(self, function: ast.FunctionDef, name: str) -> bool:
        return any(each.arg == name for each in function.args.args)
