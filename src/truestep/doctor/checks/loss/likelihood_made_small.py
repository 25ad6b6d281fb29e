# SPDX-License-Identifier: Apache-2.0
"""A log-likelihood or an entropy bonus with the wrong sign."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.library.operations import operations
from truestep.doctor.source.flow import goes_backward
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted, walk
from truestep.doctor.source.terms import Term, terms_of
from truestep.doctor.source.values import last_operations, literal, seen_through

_SHAPING = operations(numbers="kept home moved rounded averaged", graph="kept")
_ENTROPY = "The entropy is added to what is made small: the policy loses its randomness."
_LIKELIHOOD = "A log-probability is added to what is made small, without a minus."
_GOOD = re.compile(r"(^|_)(returns?|rewards?|adv(antages?)?|gaes?|reward_to_go)(_|$)", re.IGNORECASE)
_POLICY = ("log_prob", "ratio", "advantage", "advantages", "adv", "returns")


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
    words = ("log_prob", ".entropy(", "log(", "log_softmax")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a loss that is one such term times factors that carry no minus, and a sum with one."""
        told: set[ast.AST] = set()
        for node in module.all(ast.Assign):
            name = (dotted(node.targets[0]) or "").rsplit(".", 1)[-1]
            term = _positive_term(module, node.value) if "loss" in name.split("_") else None
            if term is None or not isinstance(term.func, ast.Attribute):
                continue
            if term is node.value or _is_taken_away(module, node) or not _is_added(module, node):
                continue
            if term.func.attr == "entropy" and not term.args and _is_policy(module, term):
                told.add(term)
                yield At(node, _ENTROPY, RISK)
            elif term.func.attr == "log_prob" and len(term.args) == 1:
                told.add(term)
                yield At(node, _LIKELIHOOD, RISK)
        if "maximize" not in module.identifiers:
            yield from _in_sums(module, told)
            yield from _written_out(module)


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


def _in_sums(module: SourceModule, told: set[ast.AST]) -> Iterator[At]:
    """Yield what is assigned, returned or goes backward, where such a term of it is positive."""
    holders: list[ast.Assign | ast.Return] = [*module.all(ast.Assign), *module.all(ast.Return)]
    for value in (each.value for each in holders):
        if not isinstance(value, ast.BinOp | ast.Call | ast.UnaryOp):
            continue
        terms = terms_of(module, value)
        for term in (each for each in terms if each.sign > 0 and each.node not in told):
            text = _wrong(module, term, [each for each in terms if each is not term])
            if text is not None and goes_backward(module, value):
                told.add(term.node)
                yield At(value, text, RISK)


def _written_out(module: SourceModule) -> Iterator[At]:
    """Yield the sums of a policy's loss to which -sum(p * log(p)) is added."""
    for node in module.stores:
        target = node.target if isinstance(node, ast.AugAssign) else node.targets[0]
        name = (dotted(target) or "").rsplit(".", 1)[-1].lower().split("_")
        if "loss" not in name or not {"policy", "actor", "pi", "pg"} & set(name):
            continue
        turned = -1 if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Sub) else 1
        if isinstance(node, ast.AugAssign) and not isinstance(node.op, ast.Add | ast.Sub):
            continue
        for term in terms_of(module, node.value):
            signs = [literal(module, each) for each in term.factors]
            positive = not any(isinstance(each, int | float) and each < 0 for each in signs)
            here = any(module.statement(each) is node for each in (term.node, *term.factors))
            if here and term.sign * turned < 0 and positive and _is_p_log_p(module, term):
                yield At(node, _ENTROPY, RISK)


def _is_p_log_p(module: SourceModule, term: Term) -> bool:
    """Tell `p.log() * p`, and what a softmax gave times its log_softmax."""
    parts = [*term.factors, term.node]
    if isinstance(term.node, ast.BinOp) and isinstance(term.node.op, ast.Mult):
        parts = [term.node.left, term.node.right]
    return any(_is_log_of(module, log, p) for log in parts for p in parts if p is not log)


def _is_log_of(module: SourceModule, log: ast.expr, p: ast.expr) -> bool:
    text = ast.unparse(p)
    if isinstance(log, ast.Call) and ast.unparse(log) in (f"{text}.log()", f"torch.log({text})"):
        return True
    return last_operations(module, log) == {"log_softmax"} and last_operations(module, p) == {"softmax"}


def _wrong(module: SourceModule, term: Term, others: list[Term]) -> str | None:
    """Tell an entropy beside a policy's loss, and a log-probability weighted by what is to grow."""
    call = term.node
    method = call.func.attr if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else ""
    values = [literal(module, each) for each in term.factors]
    if any(isinstance(each, int | float) and each < 0 for each in values):
        return None
    if method == "entropy" and not call.args:  # type: ignore[attr-defined]
        return _ENTROPY if any(_is_of_policy(module, each) for each in others) else None
    weighted = [each for each in term.factors if _GOOD.search((dotted(each) or "").rsplit(".", 1)[-1])]
    negated = any(isinstance(value, ast.UnaryOp) for each in weighted for value in module.definitions(each))
    return _LIKELIHOOD if method == "log_prob" and weighted and not negated else None


def _is_of_policy(module: SourceModule, term: Term) -> bool:
    """Tell a term that is made of log-probabilities, or of a ratio of them."""
    parts = [term.node, *term.factors]
    parts += [value for each in parts for value in module.definitions(each) if value is not None]
    names = {
        getattr(each, "attr", None) or getattr(each, "id", None) for part in parts for each in walk(part)
    }
    return any(each in names for each in _POLICY)
