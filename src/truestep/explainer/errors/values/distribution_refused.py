# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Crash, Explainer, Match


class DistributionRefused(Explainer):
    """A distribution gets parameters outside of what it allows, mostly NaN.

    Means: torch.distributions checks its parameters; NaN from the network is what it mostly finds.

    Raises:
        scale = torch.tensor([-1.0])
        torch.distributions.Normal(torch.zeros(1), scale)

    Works:
        scale = F.softplus(torch.tensor([-1.0]))
        torch.distributions.Normal(torch.zeros(1), scale)

    Fix: a scale goes through softplus or exp; for NaN look at what came before: a learning rate too large, rewards or inputs not
    scaled, gradients not clipped, an observation that is NaN itself.

    Cases:
        `nan=`: `{parameter}`{kinds} is NaN: the network's weights or inputs are NaN already.
        otherwise: `{parameter}`{kinds} has values that it may not have.
    """

    messages = (
        r"Expected parameter (?P<parameter>\w+) \(.* of shape (?P<shape>\([\d, ]*\))\) of .*? (?P<kind>\w+)",
        r"The parameter (?P<parameter>\w+) has invalid values",
        r"The value argument must be within the support",
    )
    not_in_a_log = "which layer gave the first NaN; truestep doctor finds it"

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        kind = match.groupdict().get("kind")
        return {"kinds": f" of {kind}" if kind else ""} | ({"nan": "yes"} if "nan" in crash.message else {})
