# SPDX-License-Identifier: Apache-2.0
"""Check REL027."""

from collections.abc import Iterator

from truestep.core.text_formatting import percent_text
from truestep.doctor.check import RISK
from truestep.doctor.relations.relation import BrokenRelation, FollowedRelation, StepExperiment

_MOST_KEPT = 0.11  # of what was there before
_ADDED = 0.1
_MOST_UNEVEN = 0.02  # of what is kept, between the numbers of a buffer


class AverageForgets(FollowedRelation):
    """A running average keeps next to nothing of what it was before the step.

    Why: it is that of the last batch then, and not of the training. Other libraries write the share that is kept where torch
    writes that of the new batch, so 0.99 is taken for 0.01.

    Bad:
        net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8, momentum=0.99), nn.ReLU(), nn.Linear(8, 3))
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for x, y in loader:  # here
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()
    Good:
        net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8, momentum=0.01), nn.ReLU(), nn.Linear(8, 3))
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()
    Fix: exchange the two shares, as momentum=0.01 for momentum=0.99.
    Evidence: new, and so preview; what it was tried on stands in benchmarks/doctor/experiments.json.
    """

    code = "REL027"
    follows = "buffers"
    num_children = 2

    def try_out(self, experiment: StepExperiment) -> Iterator[BrokenRelation]:
        """Add to buffers in a child, and look at how much of it is left behind the step."""
        from truestep.doctor.experiments.batch_changes import Change

        before = self.found(experiment, "buffers", "no layer has a buffer of fractions")["buffers"]
        after = experiment.changed(Change(follows=self.follows, by=_ADDED)).followed
        forgets = {}
        for name, added in after["added"].items():
            left = (after["buffers"][name] - before[name]).double() / added.double().clamp(min=1e-12)
            kept = float(left.median())
            if 1e-3 < kept < _MOST_KEPT and float((left - kept).abs().max()) < _MOST_UNEVEN:
                forgets[name] = kept
        if forgets:
            name, kept = next(iter(forgets.items()))
            others = f" (and {len(forgets) - 1} more)" if len(forgets) > 1 else ""
            message = (
                f"{name}{others} keeps {percent_text(kept)} of what it was before a step, so it is the average of the last batch "
                "alone. Were the share that is kept and that of the new batch exchanged?"
            )
            yield BrokenRelation(message, RISK, evidence={"name": name, "found": kept})
