# SPDX-License-Identifier: Apache-2.0
"""A loss with parameters that nobody trains."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.actions import OPTIMIZE
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Class, dotted, walk


class CriterionNotOptimized(SourceCheck):
    """A loss module has nn.Parameters of its own, and no optimizer holds them.

    Why: they stay at their random start (prototypes, centres, log-variances are never learned).

    Bad:
        class ProtoLoss(nn.Module):
            def __init__(self):
                super().__init__()
                self.prototypes = nn.Parameter(torch.randn(10, 64))

        proto = ProtoLoss()  # here
        opt = torch.optim.Adam(net.parameters())
        proto(net(x)).backward()

    Good:
        class ProtoLoss(nn.Module):
            def __init__(self):
                super().__init__()
                self.prototypes = nn.Parameter(torch.randn(10, 64))

        proto = ProtoLoss()
        opt = torch.optim.Adam([*net.parameters(), *proto.parameters()])
        proto(net(x)).backward()

    Fix: give the optimizer both: [*net.parameters(), *criterion.parameters()].

    Evidence: the plain form of row 53 of docs/mistakes.md; 186 repositories: 0 true, 2 false.
    """

    code = "LOSS015"
    never = (OPTIMIZE,)
    words = ("Parameter(",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report an instance of such a class named as a loss, whose parameters() nothing asks for."""
        optimizers = [
            call
            for name, call in module.calls_matching("torch.optim.")
            if not name.startswith("torch.optim.lr_")
        ]
        for assignment in module.all(ast.Assign):
            owner = module.classes.of(assignment.value) if isinstance(assignment.value, ast.Call) else None
            name = dotted(assignment.targets[0])
            if (
                owner is None
                or name is None
                or "loss" not in owner.name.lower()
                or module.kinds.of_class(owner) != "module"
            ):
                continue
            has = any(
                isinstance(n, ast.Call) and module.qualify(n.func) == "torch.nn.Parameter"
                for n in walk(owner)
            )
            asked = any(
                isinstance(c.func, ast.Attribute) and dotted(c.func.value) == name
                for c in module.method_calls("parameters")
            )
            if has and optimizers and not asked and not _is_held(module, owner, name):
                yield At(assignment, f"{name!r} has parameters of its own, and no optimizer holds them.")


def _is_held(module: SourceModule, owner: Class, name: str) -> bool:
    """Tell a loss that makes an optimizer itself, or of which an optimizer is given a parameter by its name."""
    inside = [call for part in module.classes.lineage(owner) for call in module.inside(part, ast.Call)]
    if any(module.kind(call) == "optimizer" for call in inside):
        return True
    given = [part for call in module.all(ast.Call) if module.kind(call) == "optimizer" for part in walk(call)]
    return any(isinstance(each, ast.Attribute) and dotted(each.value) == name for each in given)
