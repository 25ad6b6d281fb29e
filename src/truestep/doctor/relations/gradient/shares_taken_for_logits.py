# SPDX-License-Identifier: Apache-2.0
"""Check REL025."""

from collections.abc import Iterator

from truestep.doctor.check import RISK
from truestep.doctor.relations.relation import BrokenRelation, FollowedRelation, StepExperiment


class SharesTakenForLogits(FollowedRelation):
    """Shares that sum to 1 go through a softmax once more, or get the noise that draws by logits.

    Why: shares lie between 0 and 1, so as logits they are all nearly alike. What is drawn, or weighed, is nearly even.

    Bad:
        for x, y in loader:
            shares = net(x).softmax(1)
            drawn = F.gumbel_softmax(shares, tau=0.5)  # here
            opt.zero_grad()
            F.nll_loss((drawn + 1e-3).log(), y).backward()
            opt.step()
    Good:
        for x, y in loader:
            logits = net(x)
            drawn = F.gumbel_softmax(logits, tau=0.5)
            opt.zero_grad()
            F.nll_loss((drawn + 1e-3).log(), y).backward()
            opt.step()
    Fix: leave out the first softmax, or take its logarithm.
    Evidence: new, and so preview; what it was tried on stands in benchmarks/doctor/experiments.json.
    """

    code = "REL025"
    follows = "operands"

    def try_out(self, experiment: StepExperiment) -> Iterator[BrokenRelation]:
        """Ask a child where shares go."""
        found = self.found(experiment, "num_logits", "no operation of the step takes logits but a loss")
        for line, taken in found["shares"].items():
            message = (
                f"what {taken} here is never below 0 and all of its rows have one sum, so it is shares, and no logits: "
                "the outcome is nearly even. Give the values from before the first softmax, or the logarithm of its shares"
            )
            yield self.at(line, message, RISK, {"operation": taken})
