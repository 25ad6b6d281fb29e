# SPDX-License-Identifier: Apache-2.0
"""Check REL020."""

from collections.abc import Iterator

from truestep.core.text_formatting import number_text
from truestep.doctor.check import RISK
from truestep.doctor.experiments.skip_reasons import ExperimentNotTriedError
from truestep.doctor.relations.relation import BrokenRelation, FollowedRelation, StepExperiment


class PushedFromTargets(FollowedRelation):
    """The gradient pushes the outputs away from targets of 0 and 1: down where the target is 1, and up where it is 0.

    Why: what is made small is a likeness, not an error, so training makes the model worse. Its loss falls all the while.

    Bad:
        for x, y in loader:
            shares, wanted = net(x).softmax(1), F.one_hot(y, 3).float()
            overlap = 2 * (shares * wanted).sum() / (shares.square().sum() + wanted.sum())  # here
            opt.zero_grad()
            overlap.backward()
            opt.step()
    Good:
        for x, y in loader:
            shares, wanted = net(x).softmax(1), F.one_hot(y, 3).float()
            overlap = 2 * (shares * wanted).sum() / (shares.square().sum() + wanted.sum())
            opt.zero_grad()
            (1 - overlap).backward()
            opt.step()
    Fix: turn the sign round, as in `1 - overlap`.
    Evidence: new, and so preview; what it was tried on stands in benchmarks/doctor/experiments.json.
    """

    code = "REL020"
    follows = "outputs"

    def try_out(self, experiment: StepExperiment) -> Iterator[BrokenRelation]:
        """Ask a child where outputs meet targets, and which way they are pushed."""
        nothing = "no output meets targets of 0 and 1 on the only way to the loss"
        found = self.found(experiment, "num_met", nothing)
        if len(experiment.plan.optimizers) > 1:
            raise ExperimentNotTriedError("with several optimizers one model may be trained to fool another")
        for line, at_one, at_zero in found["pushed"][:1]:
            message = (
                f"the step makes outputs smaller where their target is 1 (mean gradient {number_text(at_one)}), and larger where "
                f"it is 0 ({number_text(at_zero)}): it trains away from the targets. Turn the sign of the loss round"
            )
            yield self.at(line, message, RISK, {"found": at_one, "expected": 0.0})
