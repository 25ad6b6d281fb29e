# SPDX-License-Identifier: Apache-2.0
"""A log-likelihood or an entropy bonus with the wrong sign."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.library.operations import operations
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted
from truestep.doctor.source.values import seen_through

_SHAPING = operations(numbers="kept home moved rounded averaged", graph="kept")


class LikelihoodMadeSmall(SourceCheck):
    """A loss has a log-probability of data, or the policy's entropy, with a plus.

    Why: a loss is made small: the data become less likely, the policy less random.

    Bad:
        policy = torch.distributions.Categorical(logits=net(x))
        policy_loss = -(policy.log_prob(y) * advantages).mean()
        entropy_loss = 0.01 * policy.entropy().mean()  # here
        (policy_loss + entropy_loss).backward()

    Good:
        policy = torch.distributions.Categorical(logits=net(x))
        policy_loss = -(policy.log_prob(y) * advantages).mean()
        entropy_loss = -0.01 * policy.entropy().mean()
        (policy_loss + entropy_loss).backward()

    Fix: a minus before it.
    """

    code = "LOSS033"
    words = ("log_prob",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a loss that is one such term times factors that carry no minus."""
        for node in module.all(ast.Assign):
            name = (dotted(node.targets[0]) or "").rsplit(".", 1)[-1]
            term = _positive_term(module, node.value) if "loss" in name.split("_") else None
            if term is None or not isinstance(term.func, ast.Attribute):
                continue
            if term is node.value or _is_taken_away(module, node) or not _is_added(module, node):
                continue
            if term.func.attr == "entropy" and not term.args and _is_policy(module, term):
                yield At(
                    node, "The entropy is added to what is made small: the policy loses its randomness.", RISK
                )
            elif term.func.attr == "log_prob" and len(term.args) == 1:
                yield At(node, "A log-probability is added to what is made small, without a minus.", RISK)


def _positive_term(module: SourceModule, node: ast.expr) -> ast.Call | None:
    """Return `d.log_prob(x)` or `d.entropy()` of `factor * d.log_prob(x).mean()`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        sides = [_positive_term(module, node.left), _positive_term(module, node.right)]
        found = [each for each in sides if each is not None]
        other = node.right if sides[0] is not None else node.left
        return found[0] if len(found) == 1 and _is_coefficient(other) else None
    if isinstance(node, ast.Name):
        given = seen_through(module, node)
        return _positive_term(module, given) if isinstance(given, ast.Call) else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr in _SHAPING:
            return _positive_term(module, node.func.value)
        return node if node.func.attr in ("log_prob", "entropy") else None
    return None


def _is_coefficient(node: ast.expr) -> bool:
    """Tell a positive number, an option or an argument from something computed."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int | float) and node.value > 0
    name = (dotted(node) or "").rsplit(".", 1)[-1]
    return any(word in name for word in ("coef", "weight", "scale", "factor", "beta", "alpha"))


def _is_policy(module: SourceModule, term: ast.Call) -> bool:
    """Tell whether the same function asks the same distribution for the log-probability of something."""
    assert isinstance(term.func, ast.Attribute)
    asked = [each for each in module.method_calls("log_prob") if module.scope(each) is module.scope(term)]
    return any(dotted(each.func.value) == dotted(term.func.value) for each in asked)  # type: ignore[attr-defined]


def _is_taken_away(module: SourceModule, node: ast.Assign) -> bool:
    """Tell whether the value is subtracted, or another sign is put before it, later in the function."""
    place = dotted(node.targets[0]) or ""
    for each in module.reads(place):
        parent = module.parents[each]
        subtracted = isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Sub) and parent.right is each
        if (
            subtracted
            or isinstance(parent, ast.UnaryOp)
            or (isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Mult))
        ):
            return True
    return False


def _is_added(module: SourceModule, node: ast.Assign) -> bool:
    """Tell whether the value is a term of a sum, or what backward runs on."""
    for each in module.reads(dotted(node.targets[0]) or ""):
        parent = module.parents[each]
        if isinstance(parent, ast.BinOp | ast.AugAssign) and isinstance(parent.op, ast.Add):
            return True
        if isinstance(parent, ast.Attribute) and parent.attr == "backward":
            return True
    return False
