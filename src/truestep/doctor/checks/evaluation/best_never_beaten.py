# SPDX-License-Identifier: Apache-2.0
"""A best score that starts where nothing can beat it."""

import ast
import math
from collections.abc import Iterator

from truestep.doctor.check import BUG, RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted, walk
from truestep.doctor.source.signatures import own_name
from truestep.doctor.source.values import seen_through

_NOT_NEGATIVE = ("loss", "error", "perplexity", "ppl", "mse", "mae", "rmse", "wer", "cer")


class BestNeverBeaten(SourceCheck):
    """The best score starts at a value that no later one can beat.

    Why: the test for a better model never holds: none is kept, and training may be stopped early.

    Bad:
        best_loss = 0.0
        for epoch in range(3):
            loss = evaluate(net)
            if loss < best_loss:  # here
                best_loss = loss
                torch.save(net.state_dict(), "best.pt")

    Good:
        best_loss = math.inf
        for epoch in range(3):
            loss = evaluate(net)
            if loss < best_loss:
                best_loss = loss
                torch.save(net.state_dict(), "best.pt")

    Fix: begin with math.inf for what is to become small, with -math.inf for what is to become large.
    """

    code = "EVAL035"

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a comparison with a name that its own branch updates, and whose first value is at the wrong end."""
        if "torch" not in module.text:
            return
        for branch in module.all(ast.If):
            if (found := _compared(branch)) is None or module.loop(branch) is None:
                continue
            score, best, smaller = found
            starts = _starts(module, branch, best)
            if starts and all(each == (-math.inf if smaller else math.inf) for each in starts):
                yield At(
                    branch.test, f"{ast.unparse(best)} starts at {starts[0]}: nothing is beyond it.", BUG
                )
            elif starts and smaller and all(each == 0 for each in starts) and _is_not_negative(score):
                yield At(
                    branch.test,
                    f"{ast.unparse(best)} starts at 0, and no {ast.unparse(score)} is below it.",
                    RISK,
                )


def _compared(branch: ast.If | None) -> tuple[ast.expr, ast.expr, bool] | None:
    """Return the score, the best so far and whether smaller is better, for `if score < best: best = score`."""
    test = branch.test if branch is not None else None
    if branch is None or not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return None
    smaller = isinstance(test.ops[0], ast.Lt | ast.LtE)
    if not smaller and not isinstance(test.ops[0], ast.Gt | ast.GtE):
        return None
    score, best = test.left, test.comparators[0]
    stored = {
        dotted(target): dotted(each.value)
        for each in branch.body
        if isinstance(each, ast.Assign)
        for target in each.targets
    }
    if dotted(best) is not None and stored.get(dotted(best), "") == dotted(score) is not None:
        return score, best, smaller
    if dotted(score) is not None and stored.get(dotted(score), "") == dotted(best) is not None:
        return best, score, not smaller
    return None


def _values(module: SourceModule, branch: ast.If | None, best: ast.expr) -> list[ast.expr]:
    """Return what the best is given elsewhere."""
    inside = set(walk(branch)) if branch is not None else set()
    given = [
        each for each in module.definitions(best) if each and module.scope(each) is not module.scope(best)
    ]
    return [seen_through(module, each) or each for each in given] + [
        each.value
        for each in module.all(ast.Assign)
        if any(dotted(target) == dotted(best) for target in each.targets)
        and each not in inside
        and (module.scope(each) is module.scope(best) or (dotted(best) or "").startswith("self."))
    ]


def _starts(module: SourceModule, branch: ast.If, best: ast.expr) -> list[float]:
    """Return the numbers with which it starts; none where one can't be seen."""
    found = [_number(module, each) for each in _values(module, branch, best)]
    return [each for each in found if each is not None] if None not in found else []


def _number(module: SourceModule, value: ast.expr) -> float | None:
    if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.USub):
        inner = _number(module, value.operand)
        return None if inner is None else -inner
    if isinstance(value, ast.Constant) and isinstance(value.value, int | float):
        return float(value.value)
    if module.qualify(value) in ("math.inf", "numpy.inf", "numpy.Inf", "torch.inf"):
        return math.inf
    if isinstance(value, ast.Call) and module.qualify(value.func) == "float" and value.args:
        text = getattr(value.args[0], "value", None)
        known = {"inf": math.inf, "infinity": math.inf, "-inf": -math.inf, "-infinity": -math.inf}
        return known.get(text.lower()) if isinstance(text, str) else None
    return None


def _is_not_negative(score: ast.expr) -> bool:
    words = (own_name(score) or "").lower().split("_")
    return any(each in _NOT_NEGATIVE for each in words) and not any(
        each in ("log", "neg", "elbo", "d", "g") for each in words
    )
