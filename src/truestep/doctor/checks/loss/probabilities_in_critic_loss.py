# SPDX-License-Identifier: Apache-2.0
"""A Wasserstein loss of probabilities."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.flow import goes_backward
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted
from truestep.doctor.source.terms import Term, terms_of
from truestep.doctor.source.values import last_operations


class ProbabilitiesInCriticLoss(SourceCheck):
    """The loss of a critic is the difference of two means of its outputs, and these come from a sigmoid.

    Why: the distance is a difference of unbounded scores. Between 0 and 1 the scores saturate, and the gradient that the
    generator learns from vanishes as soon as the critic is good.

    Bad:
        critic = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1), nn.Sigmoid())
        real, fake = torch.randn(4, 2), torch.randn(4, 2)
        loss = critic(fake).mean() - critic(real).mean()  # here
        loss.backward()

    Good:
        critic = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
        real, fake = torch.randn(4, 2), torch.randn(4, 2)
        loss = critic(fake).mean() - critic(real).mean()
        loss.backward()

    Fix: leave the sigmoid out of the critic.
    """

    code = "LOSS040"
    words = ("igmoid",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a sum in which means of one net's sigmoid outputs have both signs, and which goes backward."""
        told: set[ast.AST] = set()
        for node in module.all(ast.BinOp):
            if not isinstance(node.op, ast.Add | ast.Sub) or told & set(module.ancestors(node)):
                continue
            signs: dict[str, set[int]] = {}
            for term in terms_of(module, node):
                net = _net_of(module, term)
                if net is not None:
                    signs.setdefault(net, set()).add(term.sign)
            both = [net for net, found in signs.items() if len(found) == 2]
            if both and goes_backward(module, node):
                told.add(node)
                yield At(node, f"{both[0]} ends in a sigmoid, and the means of its outputs are subtracted.")


def _net_of(module: SourceModule, term: Term) -> str | None:
    """Return the net whose sigmoid outputs a term averages."""
    call = term.node
    if not term.averaged or not isinstance(call, ast.Call) or module.kind(call.func) not in ("module", "ddp"):
        return None
    return dotted(call.func) if last_operations(module, call) == {"sigmoid"} else None
