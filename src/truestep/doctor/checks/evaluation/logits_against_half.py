# SPDX-License-Identifier: Apache-2.0
"""Logits taken for probabilities by a threshold."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import BUG, RISK, At, SourceCheck
from truestep.doctor.source.loop_items import iterated_rows_source
from truestep.doctor.source.losses import loss_calls
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Class, dotted_name, method_of
from truestep.doctor.source.value_origins import argument, constant, literal, value_origins

_TURNS = ("torch.sigmoid", "torch.nn.functional.sigmoid", "torch.special.expit")
_ORDERS = ast.Lt | ast.LtE | ast.Gt | ast.GtE


class LogitsAgainstHalf(SourceCheck):
    """Outputs that a loss takes as logits are compared with 0.5.

    Why: a probability of 0.5 is a logit of 0. At 0.5 all answers between 50 % and 62 % count as "no": the metric is too low.

    Bad:
        target = torch.rand(4, 3).round()
        out = net(x)
        loss = F.binary_cross_entropy_with_logits(out, target)
        right = (out > 0.5) == target  # here

    Good:
        target = torch.rand(4, 3).round()
        out = net(x)
        loss = F.binary_cross_entropy_with_logits(out, target)
        right = (out > 0) == target

    Fix: compare with 0, or out.sigmoid() with 0.5.

    Evidence: the plain form of row 52 of docs/mistakes.md; 186 repositories, beds F, P, W, X: 6 true, 1
    debatable, 2 false.
    """

    code = "EVAL041"
    words = ("0.5", ".5", "round")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a comparison with 0.5, and a rounding, of what the same model gives a loss of logits."""
        found: list[tuple[ast.expr, ast.expr]] = [
            (node, value)
            for node in module.all(ast.Compare)
            if (value := _value_compared_with_half(module, node)) is not None
        ]
        found += [
            (node, value)
            for node in module.all(ast.Call)
            if (value := _rounded_value(module, node)) is not None
        ]
        for node, value in found:
            origins = list(value_origins(module, iterated_rows_source(module.resolver, value) or value))
            if not origins or not all(isinstance(each, ast.Call) for each in origins):
                continue
            here, elsewhere = _logit_calls_and_models(module)
            outside = [each for each in origins if module.scope(each) is not module.scope(node)]  # type: ignore[arg-type]
            if outside:
                if len(outside) == len(origins):  # the function itself turns none of it
                    yield from _forwards_compared_elsewhere(module, outside, elsewhere)
            elif all(each in here for each in origins):
                yield At(node, "These are logits: a probability of 0.5 is a logit of 0.", BUG)
            elif all(_applied_model(module, each) in elsewhere for each in origins):
                yield At(
                    node,
                    "The loss takes what this model gives as logits: 0.5 of a probability is 0 here.",
                    RISK,
                )


def _forwards_compared_elsewhere(
    module: SourceModule, origins: list[ast.expr | None], elsewhere: set[object]
) -> Iterator[At]:
    """Yield the forwards whose raw results a function compares with its threshold; they are turned somewhere else."""
    for each in origins:
        if each is not None and _applied_model(module, each) in elsewhere:
            text = "These are logits, and a function that they are given to compares them with 0.5."
            yield At(each, text, RISK)


def _value_compared_with_half(module: SourceModule, node: ast.Compare) -> ast.expr | None:
    """Return x of `x > 0.5`, and of `x > threshold` where that is 0.5 in every call."""
    if len(node.ops) == 1 and isinstance(node.ops[0], _ORDERS):
        for side, other in ((node.left, node.comparators[0]), (node.comparators[0], node.left)):
            if constant(side) == 0.5 or (isinstance(side, ast.Name) and literal(module, side) == 0.5):
                return other
    return None


def _rounded_value(module: SourceModule, call: ast.Call) -> ast.expr | None:
    if module.qualify(call.func) == "torch.round":
        return call.args[0] if call.args else None
    method = method_of(call)
    return call.func.value if method == "round" and not call.args else None  # type: ignore[attr-defined]


def _logit_calls_and_models(module: SourceModule) -> tuple[set[ast.AST], set[object]]:
    """Return the calls whose results are taken as logits in this file, and the models that give such in the program."""
    key = (_logit_calls_and_models, module.tree)
    if key not in module.remembered:
        made = {
            each
            for call in loss_calls(module, "binary_cross_entropy_with_logits")
            for each in _calls_giving_loss_input(module, call)
        }
        module.remembered[key] = made, module.program.answer(_models_of_logits)
    found: tuple[set[ast.AST], set[object]] = module.remembered[key]
    return found


def _calls_giving_loss_input(module: SourceModule, call: ast.Call) -> list[ast.Call]:
    given = argument(call, 0, "input")
    origins = list(value_origins(module, given)) if given is not None else []
    return [each for each in origins if isinstance(each, ast.Call)]


def _models_of_logits(files: list[SourceModule]) -> set[object]:
    """Return the models whose results a loss takes as logits, or a sigmoid turns into probabilities."""
    found: set[object] = set()
    for module in files:
        for call in loss_calls(module, "binary_cross_entropy_with_logits"):
            found |= {_applied_model(module, each) for each in _calls_giving_loss_input(module, call)}
        for call in [*module.calls(*_TURNS), *module.method_calls("sigmoid")]:
            given = call.args[0] if call.args else getattr(call.func, "value", None)
            origins = value_origins(module, given) if isinstance(given, ast.expr) else ()
            found |= {_applied_model(module, each) for each in origins}
    return found - {None}


def _applied_model(module: SourceModule, call: ast.AST | None) -> Class | str | None:
    """Return the class of the model that is applied, or its name where that is all there is."""
    if not isinstance(call, ast.Call) or module.kind(call.func) not in ("module", "ddp"):
        return None
    return module.classes.of(call.func) or dotted_name(call.func)
