# SPDX-License-Identifier: Apache-2.0
"""ProbabilitiesRefused."""

from typing import Any

from truestep.explainer.explainer import Cause, Crash, Explainer, Match
from truestep.explainer.values import is_tensor_at_crash, torch_at_crash


class ProbabilitiesRefused(Explainer):
    """A distribution is drawn from numbers that are no probabilities.

    Means: weights must be finite, not negative, and not all zero. Logits are none, and NaN comes from the model.

    Raises:
        logits = torch.tensor([-1.0, 2.0])
        torch.multinomial(logits, 1)

    Works:
        logits = torch.tensor([-1.0, 2.0])
        torch.multinomial(logits.softmax(-1), 1)

    Fix: apply softmax to logits first (in float32: float16 overflows), and if they are NaN look for the first NaN: `truestep
    doctor` names the layer. Masking every choice gives NaN too: leave one.
    """

    messages = (
        r"probability tensor contains either `?inf`?, `?nan`? or element < 0",
        (
            r"invalid multinomial distribution \((?P<sum>sum of probabilities <= 0|with replacement=False, not enough "
            r"non-negative category to sample)\)"
        ),
        r"prob_dist must be 1 or 2 dim",
        r"probabilities (?:contain NaN|are not non-negative|do not sum to 1)",
    )
    checks = ("LOSS012",)

    def cause(self, crash: Crash, match: Match) -> Cause | None:
        for each in crash.values:
            if (
                is_tensor_at_crash(each.value)
                and each.value.is_floating_point()
                and each.value.device.type != "meta"
            ):
                return _what_is_wrong(each.name, each.value)
        return None


def _what_is_wrong(name: str, tensor: Any) -> Cause | None:
    torch = torch_at_crash()
    if bool(torch.isnan(tensor).any()):
        return Cause(
            f"`{name}` has NaN in it.",
            "look for the first NaN (truestep doctor names the layer): too large a rate, a log of 0, float16.",
        )
    if bool(torch.isinf(tensor).any()):
        return Cause(
            f"`{name}` has infinite values.", "compute the softmax in float32 (logits.float().softmax(-1))."
        )
    if bool((tensor < 0).any()):
        return Cause(
            f"`{name}` has negative values: these are logits, not probabilities.",
            f"write torch.multinomial({name}.softmax(-1), ...).",
        )
    return Cause(f"every value of `{name}` is 0 in some row: nothing is left to draw.")
