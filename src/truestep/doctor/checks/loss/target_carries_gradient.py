# SPDX-License-Identifier: Apache-2.0
"""A target that is trained together with the prediction."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.library.losses import losses
from truestep.doctor.source.behind import calls_with_graph, is_model, is_without_grad
from truestep.doctor.source.losses import losses_of
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted
from truestep.doctor.source.values import argument

_DISCOUNT = re.compile(r"gamma|discount", re.IGNORECASE)
_OUTPUTS = re.compile(r"embed|logits|forward|encode|predict|hidden|features")
_DISTANCES = losses(target="numbers", given="numbers")


class TargetCarriesGradient(SourceCheck):
    """The target of a loss is computed with the same net as the prediction, and not detached.

    Why: the gradient also moves the target towards the prediction: a teacher learns from its pupil, a value from
    what it was to be learned from.

    Bad:
        gamma = 0.9
        value = net(x).max(1)[0]
        target = 1.0 + gamma * net(x + 1).max(1)[0]  # here
        loss = F.mse_loss(value, target)

    Good:
        gamma = 0.9
        value = net(x).max(1)[0]
        with torch.no_grad():
            target = 1.0 + gamma * net(x + 1).max(1)[0]
        loss = F.mse_loss(value, target)

    Fix: compute it under torch.no_grad(), or target.detach().
    """

    code = "LOSS037"
    words = ("kl_div", "KLDiv", "gamma", "discount")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a discounted target, and that of a divergence, behind which the prediction's call stands too."""
        for call in [*losses_of(module, *_DISTANCES), *losses_of(module, "kl_div")]:
            given, target = argument(call, 0, "input"), argument(call, 1, "target")
            if given is None or target is None or is_without_grad(module, call):
                continue
            behind_target = calls_with_graph(module, target)
            shared = _names(module, behind_target) & _names(module, calls_with_graph(module, given))
            if not shared or _is_turned(module, call):
                continue
            if _is_divergence(module, call) or _is_discounted(module, target):
                text = (
                    f"This target comes from {min(shared)}(), as the prediction does, and carries a gradient."
                )
                yield At(_where_made(module, target), text, RISK)


def _where_made(module: SourceModule, target: ast.expr) -> ast.expr:
    """Return what computes the target last, where that stands in the same function."""
    own = [each for each in module.definitions(target) if each and module.scope(each) is module.scope(target)]
    return max(own, key=lambda each: each.lineno, default=target)


def _names(module: SourceModule, calls: list[ast.Call]) -> set[str]:
    """Return the modules that are applied, and what is named as giving their outputs; data come from the same place too."""
    found = {dotted(each.func) or "" for each in calls if is_model(module, each)}
    names = {
        dotted(each.func) or ""
        for each in calls
        if not (module.qualify(each.func) or "").startswith("torch.")
    }
    return found | {each for each in names if _OUTPUTS.search(each.rsplit(".", 1)[-1])}


def _is_divergence(module: SourceModule, call: ast.Call) -> bool:
    return call in losses_of(module, "kl_div")


def _is_turned(module: SourceModule, call: ast.Call) -> bool:
    """Tell whether there is a second loss the other way round: both sides are to learn."""
    twins = [each for each in losses_of(module, "kl_div") if module.scope(each) is module.scope(call)]
    return len(twins) > 1


def _is_discounted(module: SourceModule, target: ast.expr) -> bool:
    values = [target, *(each for each in module.definitions(target) if each is not None)]
    return any(_DISCOUNT.search(ast.unparse(each)) for each in values)
