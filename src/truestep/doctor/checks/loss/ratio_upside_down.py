# SPDX-License-Identifier: Apache-2.0
"""A ratio of old to new probabilities."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.values import argument, behind, value_origins

_CLIPS = ("torch.clamp", "torch.clip")


class RatioUpsideDown(SourceCheck):
    """The ratio of a clipped policy loss is exp(old - new): the old policy's probability over the new one's.

    Why: its gradient has the opposite sign: actions that went well become rarer.

    Bad:
        def loss_of(old, advantage):
            policy = torch.distributions.Categorical(logits=net(x))
            ratio = torch.exp(old - policy.log_prob(y))  # here
            clipped = torch.clamp(ratio, 0.8, 1.2)
            return -torch.min(ratio * advantage, clipped * advantage).mean()

    Good:
        def loss_of(old, advantage):
            policy = torch.distributions.Categorical(logits=net(x))
            ratio = torch.exp(policy.log_prob(y) - old)
            clipped = torch.clamp(ratio, 0.8, 1.2)
            return -torch.min(ratio * advantage, clipped * advantage).mean()

    Fix: exp(new - old).
    """

    code = "LOSS044"
    words = ("log_prob",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report exp() of a difference whose second part alone is a log_prob() of this function, where it is clipped."""
        clipped = [each for name in _CLIPS for each in module.calls(name)]
        ratios = {origin for call in clipped if call.args for origin in value_origins(module, call.args[0])}
        ratios |= {
            origin
            for call in module.method_calls("clamp", "clip")
            if isinstance(call.func, ast.Attribute)
            for origin in value_origins(module, call.func.value)
        }
        for call in (each for each in ratios if isinstance(each, ast.Call)):
            difference = _exponent(module, call)
            if isinstance(difference, ast.BinOp) and isinstance(difference.op, ast.Sub):
                new, old = _is_new(module, difference.left), _is_new(module, difference.right)
                if old and not new:
                    yield At(call, "This is the old probability over the new one.", RISK)


def _exponent(module: SourceModule, call: ast.Call) -> ast.expr | None:
    if module.qualify(call.func) == "torch.exp":
        given = argument(call, 0, "input")
    elif isinstance(call.func, ast.Attribute) and call.func.attr == "exp":
        given = call.func.value
    else:
        return None
    origins = list(value_origins(module, given)) if given is not None else []
    return origins[0] if len(origins) == 1 else None


def _is_new(module: SourceModule, node: ast.expr) -> bool:
    """Tell a log-probability that is computed in this function."""
    calls = [each for each in behind(module, node) if isinstance(each.func, ast.Attribute)]
    return any(each.func.attr == "log_prob" for each in calls)  # type: ignore[attr-defined]
