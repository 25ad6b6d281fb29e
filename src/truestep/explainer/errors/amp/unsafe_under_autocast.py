# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Explainer


class UnsafeUnderAutocast(Explainer):
    """Binary cross entropy on probabilities is used within autocast.

    Means: in float16 probabilities near 0 and 1 round to them, and their logarithm is infinite, so torch refuses.

    Recorded:
        RuntimeError: torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.

    Fix: use binary_cross_entropy_with_logits (nn.BCEWithLogitsLoss) and take the sigmoid out of the model; or compute this loss
    outside: with torch.autocast("cuda", enabled=False): loss(p.float(), y).
    """

    messages = (r"are unsafe to autocast",)
    not_in_a_log = ""
