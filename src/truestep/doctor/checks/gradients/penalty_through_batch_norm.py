# SPDX-License-Identifier: Apache-2.0
"""A gradient penalty on a critic with batch norm."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Class, Function, walk
from truestep.doctor.source.penalties import nets_of, penalties_in


class PenaltyThroughBatchNorm(SourceCheck):
    """A critic whose gradient is penalised by each example has batch norm.

    Why: its output for one example then depends on all others of the batch, so the gradient that is held at 1 is not the
    slope at that example; the penalty says nothing about the critic (Gulrajani et al. 2017, section 4).

    Bad:
        class Critic(nn.Module):
            def __init__(self):
                super().__init__()
                self.body = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))  # here

            def forward(self, x):
                return self.body(x)

        critic = Critic()
        z = x.clone().requires_grad_(True)
        g = torch.autograd.grad(critic(z).sum(), z, create_graph=True)[0]
        (critic(x).mean() + ((g.norm(dim=1) - 1) ** 2).mean()).backward()

    Good:
        class Critic(nn.Module):
            def __init__(self):
                super().__init__()
                self.body = nn.Sequential(nn.Linear(2, 4), nn.LayerNorm(4), nn.Linear(4, 1))

            def forward(self, x):
                return self.body(x)

        critic = Critic()
        z = x.clone().requires_grad_(True)
        g = torch.autograd.grad(critic(z).sum(), z, create_graph=True)[0]
        (critic(x).mean() + ((g.norm(dim=1) - 1) ** 2).mean()).backward()

    Fix: nn.LayerNorm, nn.InstanceNorm2d or none in the critic.
    """

    code = "GRAD055"
    words = ("BatchNorm",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report the first batch norm that a net makes whose gradient by its inputs goes backward."""
        nets = {each for call in penalties_in(module) for each in nets_of(module, call)}
        for owner in sorted(nets, key=lambda each: each.lineno):
            norm = _batch_norm_in(module, owner, set())
            if norm is not None:
                text = f"{owner.name} has batch norm, and its gradient at each example is penalised."
                yield At(norm, text, RISK)


def _batch_norm_in(module: SourceModule, node: Class | Function, seen: set[ast.AST]) -> ast.Call | None:
    """Return the first `nn.BatchNorm...()` that a class makes, be it by the program's other classes and functions."""
    seen.add(node)
    for call in (each for each in walk(node) if isinstance(each, ast.Call)):
        name = module.qualify(call.func) or ""
        if name.startswith("torch.nn.") and "BatchNorm" in name:
            return call
        made = module.class_named(call.func) or module.function_named(call.func)
        if (
            made is not None
            and made not in seen
            and (found := _batch_norm_in(module, made, seen)) is not None
        ):
            return found
    return None
