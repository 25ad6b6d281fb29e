# SPDX-License-Identifier: Apache-2.0
"""Check REL019."""

from collections.abc import Iterator

from truestep.doctor.check import QUESTION, RISK
from truestep.doctor.relations.relation import BrokenRelation, FollowedRelation, StepExperiment


class PairedWithItself(FollowedRelation):
    """A value is given a new axis twice, at the same place, and combined with itself; or two terms are the same numbers.

    Why: `m[:, None, :] * m[:, None, :]` is the square of `m`, not a table of all pairs. `unsqueeze(-1)` and `unsqueeze(2)`
    are the same axis of a value of two axes. And of two directions or views that give the same numbers, one is not what
    it should be.

    Bad:
        for x, y in loader:
            far = (x.unsqueeze(1) - x.unsqueeze(1)).square().sum(-1)  # here
            near = torch.exp(-far) / len(x)
            opt.zero_grad()
            F.cross_entropy(net(x) * (1 + near), y).backward()
            opt.step()
    Good:
        for x, y in loader:
            far = (x.unsqueeze(1) - x.unsqueeze(0)).square().sum(-1)
            near = torch.exp(-far) / len(x)
            opt.zero_grad()
            F.cross_entropy(near @ net(x), y).backward()
            opt.step()
    Fix: give one of the two its new axis at another place; compute the second term of what it is meant for.
    Evidence: new, and so preview; what it was tried on stands in benchmarks/doctor/experiments.json.
    """

    code = "REL019"
    follows = "operands"

    def try_out(self, experiment: StepExperiment) -> Iterator[BrokenRelation]:
        """Ask a child what it paired with itself."""
        found = self.found(experiment)
        for line in found["twins"]:
            message = (
                "both sides of an operation here are one value, whose new axis stands at the same place on both, so it is "
                "combined with itself and nothing is paired. Put one of the new axes elsewhere"
            )
            yield self.at(line, message, RISK)
        for line in [] if experiment.base.draws else found["doubled"]:
            message = (
                "the two sides of a sum here are the same numbers, though each is computed for itself. "
                "Is it meant to count twice, or is one of them to be of something else?"
            )
            yield self.at(line, message, QUESTION)
