# SPDX-License-Identifier: Apache-2.0
"""Check REL018."""

from collections.abc import Iterator
from itertools import islice

from truestep.doctor.check import QUESTION, RISK
from truestep.doctor.relations.relation import BrokenRelation, FollowedRelation, StepExperiment

_MOST_CONDITIONS = 6


class ConditionWithoutEffect(FollowedRelation):
    """A condition chooses among a step's values, and its opposite gives the same step; or it has one answer alone.

    Why: both branches are the same value, or what is compared can't lie on the other side, as a square below 0. The case
    that the condition is there for is never treated as it should be.

    Bad:
        for x, y in loader:
            errors = F.cross_entropy(net(x), y, reduction="none")
            far = errors > 1  # here
            losses = torch.where(far, errors, errors)
            opt.zero_grad()
            losses.mean().backward()
            opt.step()
    Good:
        for x, y in loader:
            errors = F.cross_entropy(net(x), y, reduction="none")
            far = errors > 1
            losses = torch.where(far, errors, errors / 2)
            opt.zero_grad()
            losses.mean().backward()
            opt.step()
    Fix: give each answer its own value, or compare what has both signs: a difference, not its square.
    Evidence: new, and so preview; what it was tried on stands in benchmarks/doctor/experiments.json.
    """

    code = "REL018"
    follows = "operands"
    num_children = 3

    def try_out(self, experiment: StepExperiment) -> Iterator[BrokenRelation]:
        """Ask a child for conditions, and others for the opposite of each."""
        assert experiment.tolerance
        found = self.found(experiment, "conditions", "no comparison chooses among values with a graph")
        for each, answer in islice(found["conditions"].items(), _MOST_CONDITIONS):
            sign, _, line = each.partition(" ")
            sign = sign.partition("@")[0]
            if answer:
                message = (
                    f"this compares by {sign}, and {answer}. What it chooses is the same in every step. "
                    "Compare what can lie on both sides, such as the difference in place of its square"
                )
                yield self.at(line, message, RISK, {"condition": sign})
            elif not self._has_effect_on_step(experiment, each):
                message = (
                    f"the step is the same, to the bit, where this comparison by {sign} gives the opposite answer, though "
                    "what it chooses counts. Are both branches meant to give the same here?"
                )
                yield self.at(line, message, QUESTION, {"condition": sign})

    def _has_effect_on_step(self, experiment: StepExperiment, condition: str) -> bool:
        """Tell whether a condition's answer changes the step, or what it chooses does not."""
        return self.makes_a_difference(experiment, flipped=condition) or not self.makes_a_difference(
            experiment, chosen=condition
        )
