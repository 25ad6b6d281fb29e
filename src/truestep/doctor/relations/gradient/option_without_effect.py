# SPDX-License-Identifier: Apache-2.0
"""Check REL013."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from truestep.doctor.check import QUESTION
from truestep.doctor.relations.relation import BrokenRelation, StepRelation

if TYPE_CHECKING:
    from torch import nn

    from truestep.doctor.experiments.step_experiment import StepExperiment


class OptionWithoutEffect(StepRelation):
    """A number that a criterion is made with changes neither its loss nor any gradient.

    Why: a weight, a margin or an index to ignore that is stored and never applied leaves the training as it was, whatever
    is written for it.

    Bad:
        class Weighted(nn.Module):
            def __init__(self, weight=0.5):
                super().__init__()
                self.weight = weight
            def forward(self, logits, y):
                scaled = self.weight * F.cross_entropy(logits, y)
                return F.cross_entropy(logits, y)
        criterion = Weighted()
        for x, y in loader:  # here
            opt.zero_grad()
            criterion(net(x), y).backward()
            opt.step()
    Good:
        class Weighted(nn.Module):
            def __init__(self, weight=0.5):
                super().__init__()
                self.weight = weight
            def forward(self, logits, y):
                return self.weight * F.cross_entropy(logits, y)
        criterion = Weighted()
        for x, y in loader:
            opt.zero_grad()
            criterion(net(x), y).backward()
            opt.step()
    Fix: apply the option where the loss is computed, or take it out.
    Evidence: new, and so preview; what it was tried on stands in benchmarks/doctor/experiments.json.
    """

    code = "REL013"
    needs_batch = False
    num_children = 2

    def why_not_applicable(self, criteria: "Mapping[str, nn.Module]") -> str | None:
        """Return that no criterion is made with numbers, where none is."""
        from truestep.doctor.experiments.criterion_options import NO_OPTION, criterion_options

        return None if any(True for _ in criterion_options(criteria)) else NO_OPTION

    def try_out(self, experiment: "StepExperiment") -> Iterator[BrokenRelation]:
        """Go on with each option changed."""
        from truestep.doctor.experiments.criterion_options import changed_options, demand_options

        demand_options(experiment)
        idle = [
            (option, changed)
            for option, changed in changed_options(experiment)
            if not experiment.makes_a_difference(changed)
        ]
        if not idle:
            return
        told = ", ".join(
            f"{each.name}={each.value!r} of {each.criterion} (tried: {changed.value!r})"
            for each, changed in idle
        )
        message = (
            f"with other numbers in the place of {told} neither the loss nor a gradient of this step is another one. "
            "Are they meant for other cases than this batch?"
        )
        evidence = {"options": [each.name for each, _ in idle], "found": 0.0}
        yield BrokenRelation(message, QUESTION, evidence=evidence)  # one finding: all are of one line
