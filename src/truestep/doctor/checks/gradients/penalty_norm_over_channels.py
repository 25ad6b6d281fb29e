# SPDX-License-Identifier: Apache-2.0
"""A gradient penalty whose norm is not that of an example."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck, Unsure
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Class, Function, walk
from truestep.doctor.source.values import argument, behind, literal


class PenaltyNormOverChannels(SourceCheck):
    """The gradients of a penalty on images are normed along axis 1 without being flattened.

    Why: axis 1 is the channels: each pixel's gradient is pulled to the norm that the whole example's
    should have.

    Bad:
        class Critic(nn.Module):
            def __init__(self):
                super().__init__()
                self.conv = nn.Conv2d(1, 1, 8)

            def forward(self, x):
                return self.conv(x).flatten(1)

        critic = Critic()
        mixed = torch.randn(8, 1, 8, 8, requires_grad=True)
        gradients = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)[0]
        penalty = ((gradients.norm(2, dim=1) - 1) ** 2).mean()  # here

    Good:
        class Critic(nn.Module):
            def __init__(self):
                super().__init__()
                self.conv = nn.Conv2d(1, 1, 8)

            def forward(self, x):
                return self.conv(x).flatten(1)

        critic = Critic()
        mixed = torch.randn(8, 1, 8, 8, requires_grad=True)
        gradients = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)[0]
        penalty = ((gradients.flatten(1).norm(2, dim=1) - 1) ** 2).mean()

    Fix: gradients.flatten(1) first.

    Evidence: eriklindernoren/PyTorch-GAN 36d3c77e implementations/dragan/dragan.py:166; bed I: 1 true, 0 false.
    """

    code = "GRAD040"
    words = ("autograd",)

    def read(self, module: SourceModule) -> Iterator[At | Unsure]:
        """Report `.norm(2, dim=1)` of what autograd.grad gave, where a net of convolutions was differentiated."""
        for call in module.method_calls("norm"):
            assert isinstance(call.func, ast.Attribute)
            source = self._gradient(module, call.func.value)
            if source is None or literal(module, argument(call, 1, "dim")) != 1:
                continue
            nets = self._nets(module, source)
            if any(net is not None and _has_convolutions(module, net) for net in nets):
                yield At(call, "This norm runs over the channels, not over each example: flatten(1) first.")
            elif None in nets or not nets:
                yield Unsure(call, "whether the gradients are those of images can't be seen from here")

    def _gradient(self, module: SourceModule, node: ast.expr) -> ast.Call | None:
        """Return the call of autograd.grad that a name stands for, with nothing but `[0]` between."""
        values = module.definitions(node) or [node]
        if len(values) != 1 or not isinstance(values[0], ast.Subscript):
            return None
        made = values[0].value
        is_grad = isinstance(made, ast.Call) and module.qualify(made.func) == "torch.autograd.grad"
        return made if is_grad and isinstance(made, ast.Call) else None

    def _nets(self, module: SourceModule, gradient: ast.Call) -> set[Class | None]:
        """Return the classes of what was applied to get the outputs."""
        outputs = argument(gradient, 0, "outputs")
        found: set[Class | None] = set()
        for call in behind(module, outputs) if outputs is not None else ():
            if isinstance(call.func, ast.Name) or ast.unparse(call.func).startswith("self."):
                found.add(module.classes.of(call.func))
        return found


def _has_convolutions(module: SourceModule, owner: Class | Function) -> bool:
    """Tell a net of convolutions, unless it views its input first: what it is given may be flat."""
    forward = module.classes.method(owner, "forward") if isinstance(owner, ast.ClassDef) else None
    if forward is not None and len(forward.args.args) > 1:
        given = forward.args.args[1].arg
        views = module.home(forward).method_calls("view", "reshape", "unflatten")
        views = [each for each in views if forward in module.ancestors(each)]
        if any(ast.unparse(each.func).startswith(f"{given}.") for each in views):
            return False
    calls = (each for each in walk(owner) if isinstance(each, ast.Call))
    return any((module.qualify(each.func) or "").startswith("torch.nn.Conv") for each in calls)
