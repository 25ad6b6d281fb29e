# SPDX-License-Identifier: Apache-2.0
"""An entropy bonus with the wrong sign."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.flow import goes_backward
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import walk
from truestep.doctor.source.terms import Term, terms_of
from truestep.doctor.source.values import constant, literal

_POLICY = ("log_prob", "ratio", "advantage", "advantages", "adv", "returns")


class EntropyPunished(SourceCheck):
    """The entropy of a policy is added to the loss that is made small.

    Why: the bonus is meant to keep the policy open; added, it drives the policy to one action as fast as it can.

    Bad:
        policy = torch.distributions.Categorical(logits=net(x))
        policy_loss = -(policy.log_prob(y) * torch.ones(4)).mean()
        loss = policy_loss + 0.01 * policy.entropy().mean()  # here
        loss.backward()

    Good:
        policy = torch.distributions.Categorical(logits=net(x))
        policy_loss = -(policy.log_prob(y) * torch.ones(4)).mean()
        loss = policy_loss - 0.01 * policy.entropy().mean()
        loss.backward()

    Fix: subtract it.
    """

    code = "LOSS042"
    words = (".entropy(",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a sum that goes backward, with entropy() as a positive term beside a term of log-probabilities."""
        if "maximize" in module.identifiers:
            return
        told: set[ast.AST] = set()
        for node in module.all(ast.BinOp):
            if not isinstance(node.op, ast.Add | ast.Sub) or told & set(module.ancestors(node)):
                continue
            terms = terms_of(module, node)
            entropies = [each for each in terms if _is_entropy(module, each)]
            others = [each for each in terms if each not in entropies and _is_of_policy(module, each)]
            if (
                entropies
                and others
                and any(each.sign > 0 for each in entropies)
                and goes_backward(module, node)
            ):
                told.add(node)
                yield At(node, "The entropy is added to a loss: the policy is driven to lose it.", RISK)


def _is_entropy(module: SourceModule, term: Term) -> bool:
    """Tell `entropy()`, unless what it is multiplied by is known to be negative."""
    call = term.node
    if not isinstance(call, ast.Call) or getattr(call.func, "attr", "") != "entropy" or call.args:
        return False
    numbers = [literal(module, each) for each in term.factors if constant(each) is None]
    return not any(isinstance(each, int | float) and each < 0 for each in numbers)


def _is_of_policy(module: SourceModule, term: Term) -> bool:
    """Tell a term that is made of log-probabilities, or of a ratio of them."""
    parts = [term.node, *term.factors]
    parts += [value for each in parts for value in module.definitions(each) if value is not None]
    names = {
        getattr(each, "attr", None) or getattr(each, "id", None) for part in parts for each in walk(part)
    }
    return any(each in names for each in _POLICY)
