# SPDX-License-Identifier: Apache-2.0
"""KL divergence of values that are not on the scale it takes."""

import ast
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import BUG, At, SourceCheck
from truestep.doctor.library.operations import operations
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.rewriting import Edits, SourceRewriteError, replaced, text_of
from truestep.doctor.source.values import argument, forwards_all, last_operations, literal, value_origins

_LOGARITHMS = operations(numbers="log-share logarithm")
_PROBABILITIES = operations(numbers="share")


class DivergenceOfRawValues(SourceCheck):
    """The KL divergence is given probabilities where it takes logarithms, or logarithms for the target.

    Why: F.kl_div(input, target) computes target * (log(target) - input): of other values it is no divergence, and may be negative.

    Bad:
        student, teacher = nn.Linear(4, 3), nn.Linear(4, 3)
        q = F.softmax(teacher(x), dim=1).detach()
        loss = F.kl_div(F.softmax(student(x), dim=1), q, reduction="batchmean")  # here

    Good:
        student, teacher = nn.Linear(4, 3), nn.Linear(4, 3)
        q = F.softmax(teacher(x), dim=1).detach()
        loss = F.kl_div(F.log_softmax(student(x), dim=1), q, reduction="batchmean")

    Fix: log_softmax for the first, softmax for the second; for logarithms of both log_target=True.
    """

    code = "LOSS039"
    words = ("kl_div", "KLDivLoss")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a first argument that ends in softmax, and a second that ends in a logarithm."""
        for call, settings in _divergences(module):
            if forwards_all(call) or any(isinstance(each, ast.Starred) for each in call.args):
                continue
            given, target = argument(call, 0, "input"), argument(call, 1, "target")
            if given is None or target is None:
                continue
            if last_operations(module, given) <= _PROBABILITIES:
                yield At(call, "The first argument is a probability: kl_div takes its logarithm.", BUG)
                continue
            flag = argument(settings, 3 if settings is not call else 5, "log_target")
            if last_operations(module, target) <= _LOGARITHMS and (
                flag is None or literal(module, flag) is False
            ):
                text = "The target is a logarithm: without log_target=True kl_div takes a probability."
                yield At(call, text, BUG)

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Take the logarithm where the softmax is written in the call."""
        given = argument(node, 0, "input")
        if not (isinstance(given, ast.Call) and module.qualify(given.func) == "torch.nn.functional.softmax"):
            raise SourceRewriteError
        assert isinstance(given.func, ast.Attribute)
        return [replaced(module, given.func, f"{text_of(module, given.func.value)}.log_softmax")]


def _divergences(module: SourceModule) -> Iterator[tuple[ast.Call, ast.Call]]:
    """Yield each call with the call that holds its settings: itself, or what made the layer."""
    for call in module.calls("torch.nn.functional.kl_div"):
        yield call, call
    for call in module.all(ast.Call):
        if isinstance(call.func, ast.Call | ast.Name | ast.Attribute) and len(call.args) == 2:
            made = [call.func] if isinstance(call.func, ast.Call) else list(value_origins(module, call.func))
            layers = [each for each in made if isinstance(each, ast.Call)]
            names = {module.qualify(each.func) for each in layers}
            if len(layers) == len(made) == 1 and names == {"torch.nn.KLDivLoss"}:
                yield call, layers[0]
