# SPDX-License-Identifier: Apache-2.0
"""A critic's loss that has the same sign for real and generated examples."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.behind import has_no_graph
from truestep.doctor.source.flow import goes_backward
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted
from truestep.doctor.source.terms import Term, terms_of


class ScoresPushedAlike(SourceCheck):
    """A loss is the sum of a critic's mean scores of real and of detached, generated examples, both with one sign.

    Why: the critic is to tell them apart by a difference. With one sign it only moves all of its scores up, or down.

    Bad:
        critic, generator = nn.Linear(3, 1), nn.Linear(3, 3)
        fake = generator(x).detach()
        loss = -(critic(x).mean() + critic(fake).mean())  # here
        loss.backward()

    Good:
        critic, generator = nn.Linear(3, 1), nn.Linear(3, 3)
        fake = generator(x).detach()
        loss = critic(fake).mean() - critic(x).mean()
        loss.backward()

    Fix: critic(fake).mean() - critic(real).mean().
    """

    code = "LOSS042"
    words = ("detach", "no_grad")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a sum of two such terms and no other, one of them of something without a graph."""
        holders: list[ast.Assign | ast.Return] = [*module.all(ast.Assign), *module.all(ast.Return)]
        for value in (each.value for each in holders):
            terms = terms_of(module, value) if isinstance(value, ast.BinOp | ast.UnaryOp) else []
            applied = [_applied(module, each) for each in terms]
            if len(terms) != 2 or None in applied or len({each.sign for each in terms}) != 1:
                continue
            (first, one), (second, other) = applied  # type: ignore[misc]
            cut = has_no_graph(module, one), has_no_graph(module, other)
            if (
                first == second
                and any(cut)
                and not all(cut)
                and value is not None
                and goes_backward(module, value)
            ):
                yield At(
                    value, f"{first} is to score both higher, or both lower: it learns no difference.", RISK
                )


def _applied(module: SourceModule, term: Term) -> tuple[str, ast.expr] | None:
    """Return the net whose plain scores a term averages, and what it is applied to."""
    call = term.node
    if not term.averaged or not isinstance(call, ast.Call) or len(call.args) != 1:
        return None
    name = dotted(call.func)
    other = module.qualify(call.func) is not None or module.target(call) is not None
    is_net = module.kind(call.func) in ("module", "ddp") or (isinstance(call.func, ast.Name) and not other)
    return (name, call.args[0]) if name is not None and is_net else None
