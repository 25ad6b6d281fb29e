# SPDX-License-Identifier: Apache-2.0
from typing import Any

from truestep.explainer.explainer import Crash, Explainer, Match


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

    Cases:
        `wrong=nan`: `{name}` has NaN in it.
            Fix: look for the first NaN (truestep doctor names the layer): too large a rate, a log of 0, float16.
        `wrong=infinite`: `{name}` has infinite values.
            Fix: compute the softmax in float32 (logits.float().softmax(-1)).
        `wrong=negative`: `{name}` has negative values: these are logits, not probabilities.
            Fix: write torch.multinomial({name}.softmax(-1), ...).
        otherwise: every value of `{name}` is 0 in some row: nothing is left to draw.
    """

    messages = (
        r"probability tensor contains either `?inf`?, `?nan`? or element < 0",
        r"invalid multinomial distribution \((?P<sum>sum of probabilities <= 0|with replacement=False, .*sample)\)",
        r"prob_dist must be 1 or 2 dim",
        r"probabilities (?:contain NaN|are not non-negative|do not sum to 1)",
    )
    checks = ("LOSS012",)

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        for each in crash.tensors:
            if each.value.is_floating_point() and each.value.device.type != "meta":
                return {"name": each.name, "wrong": _invalid_probabilities_text(each.value)}
        return {}


def _invalid_probabilities_text(tensor: Any) -> str:
    tests = {"nan": tensor.isnan(), "infinite": tensor.isinf(), "negative": tensor < 0}
    return next((name for name, found in tests.items() if bool(found.any())), "zero")
