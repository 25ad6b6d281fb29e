# SPDX-License-Identifier: Apache-2.0
"""An expectation whose terms are averaged."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import receiver_of, walk
from truestep.doctor.source.value_origins import argument, constant, last_operations, resolve_expression

_PROBABILITIES = re.compile(r"(^|_)(probs?|probabilit(y|ies)|policy_probs)(_|$)", re.IGNORECASE)
_NOT = re.compile(r"log|ratio|dropout|drop|old|behavio", re.IGNORECASE)


class MeanOfExpectation(SourceCheck):
    """Values weighted with the probabilities of classes or actions are averaged over these, not summed.

    Why: the weights sum to 1 already: the expectation, entropy or divergence is too small by the number of classes.

    Bad:
        log_p = net(x).log_softmax(1)
        p = log_p.exp()
        entropy = -(p * log_p).mean()  # here
        loss = F.nll_loss(log_p, y) - 0.01 * entropy

    Good:
        log_p = net(x).log_softmax(1)
        p = log_p.exp()
        entropy = -(p * log_p).sum(1).mean()
        loss = F.nll_loss(log_p, y) - 0.01 * entropy

    Fix: .sum(dim) over the classes, then .mean() over the batch.

    Evidence: 186 repositories: said 1 times, not judged; beds C, E: 2 true, 2 debatable, 0 false.
    """

    code = "LOSS035"

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a mean over all, or over the last axis, of a product with probabilities."""
        if "softmax" not in module.text and "prob" not in module.text:
            return
        for call, value in _means_over_classes(module):
            product = resolve_expression(module, value)
            if isinstance(product, ast.UnaryOp):
                product = product.operand
            if isinstance(product, ast.BinOp) and isinstance(product.op, ast.Mult):
                left, right = product.left, product.right
                for one, other in ((left, right), (right, left)):
                    if _is_distribution(module, one) and _has_value_per_class(other):
                        text = f"Weighted with {ast.unparse(one)!r}, and averaged: an expectation is a sum."
                        yield At(call, text, RISK)
                        break


def _means_over_classes(module: SourceModule) -> Iterator[tuple[ast.Call, ast.expr]]:
    """Yield the means over all axes or the last, with what they are of."""
    calls = [(call, call.args[0], 1) for call in module.calls("torch.mean") if call.args]
    calls += [
        (call, call.func.value, 0)
        for call in module.method_calls("mean")
        if isinstance(call.func, ast.Attribute) and module.qualify(call.func) is None
    ]
    for call, value, at in calls:
        dim = argument(call, at, "dim")
        if dim is None or constant(dim) in (1, -1):
            yield call, value


def _is_distribution(module: SourceModule, node: ast.expr) -> bool:
    """Tell what a softmax gave, the exponential of its logarithm, or what is named as probabilities of everything."""
    made = resolve_expression(module, node)
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    operations = last_operations(module, node)
    if operations == {"softmax"}:
        return True
    if operations == {"exp"} and isinstance(made, ast.Call):
        inner = made.args[0] if made.args else receiver_of(made)
        return inner is not None and last_operations(module, inner) == {"log_softmax"}
    return bool(name) and bool(_PROBABILITIES.search(name)) and name.endswith("s") and not _NOT.search(name)


def _has_value_per_class(node: ast.expr) -> bool:
    """Tell a value for each class from a factor of all."""
    return not isinstance(node, ast.Constant) and any(
        isinstance(each, (ast.Call, ast.Name)) for each in walk(node)
    )
