# SPDX-License-Identifier: Apache-2.0
"""The best by the wrong sign."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Function, dotted, walk
from truestep.doctor.source.uses import arms
from truestep.doctor.source.values import seen_through

# what the field calls figures that are better when they are high, and when they are low
_HIGH = re.compile(
    r"(^|_)(acc|accuracy|f1|auc|auroc|miou|iou|dice|bleu|recall|psnr|ssim|map)($|_|\d)", re.IGNORECASE
)
_LOW = re.compile(
    r"(^|_|[a-z])(loss|error|mse|mae|rmse|perplexity|ppl|nll|wer|cer|eer)($|_|\d)", re.IGNORECASE
)


class BestByWrongDirection(SourceCheck):
    """The best model so far is chosen by the lowest accuracy, or by the highest loss.

    Why: the worst model is kept as the best one, and an early stop waits for the wrong end of the figure.

    Bad:
        best = 1.0
        for epoch in range(3):
            for x, y in loader:
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()
                opt.step()
            accuracy = evaluate(net)
            if accuracy < best:  # here
                best = accuracy
                torch.save(net.state_dict(), "best.pt")

    Good:
        best = 0.0
        for epoch in range(3):
            for x, y in loader:
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()
                opt.step()
            accuracy = evaluate(net)
            if accuracy > best:
                best = accuracy
                torch.save(net.state_dict(), "best.pt")

    Fix: `>` for what is better when it is high, `<` for a loss; and begin with the worst value of the two.
    """

    code = "EVAL051"
    words = ("best",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a comparison whose branch keeps the value as the best, where every name of the value says the other sign."""
        for node in module.all(ast.If) if "torch" in module.text else ():
            condition, body, _ = arms(node)
            test = seen_through(module, condition)
            value = _kept(test, body) if isinstance(test, ast.Compare) else None
            if value is None or not isinstance(test, ast.Compare):
                continue
            asks_low = isinstance(test.ops[0], ast.Lt | ast.LtE) is (test.left is value)
            said = _said(module, value)
            if said and all(high is asks_low for high in said.values()):
                name = next(iter(said))
                kind = "the lowest" if asks_low else "the highest"
                yield At(test, f"This keeps {kind} {name!r} as the best.", RISK)


def _kept(test: ast.Compare, body: list[ast.stmt]) -> ast.expr | None:
    """Return v of `if v < best: best = v`, whichever side it stands on."""
    if len(test.ops) != 1 or not isinstance(test.ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE):
        return None
    sides = test.left, test.comparators[0]
    for value, best in (sides, (sides[1], sides[0])):
        if "best" not in (dotted(best) or "") or dotted(value) is None:
            continue
        for each in (inner for part in body for inner in walk(part) if isinstance(inner, ast.Assign)):
            if dotted(each.targets[0]) == dotted(best) and dotted(each.value) == dotted(value):
                return value
    return None


def _said(module: SourceModule, value: ast.expr) -> dict[str, bool]:
    """Return what the value is called here, or where the function is called, each with whether that is better when it is high."""
    name = (dotted(value) or "").rpartition(".")[2]
    given = _given(module, value)
    if given:  # what is handed over tells more than the parameter's name
        names = [dotted(each) for each in given]
        found = {
            each.rpartition(".")[2]: _is_high(each.rpartition(".")[2]) for each in names if each is not None
        }
        return {each: high for each, high in found.items() if high is not None} if None not in names else {}
    high = _is_high(name)
    return {name: high} if high is not None else {}


def _given(module: SourceModule, value: ast.expr) -> list[ast.expr]:
    scope = module.scope(value)
    if not isinstance(value, ast.Name) or not isinstance(scope, Function) or isinstance(scope, ast.Lambda):
        return []
    if [each.how for each in module.bindings(value)] != ["parameter"]:
        return []
    alike = [each for file in module.linked for each in file.functions if each.name == scope.name]
    calls = module.called_anywhere(scope.name) if len(alike) == 1 else module.callers(scope)
    found = [module.argument_for(scope, call, value.id) for call in calls]
    return [each for each in found if each is not None and not isinstance(each, ast.Constant)]


def _is_high(name: str) -> bool | None:
    high, low = bool(_HIGH.search(name)), bool(_LOW.search(name))
    return high if high is not low else None
