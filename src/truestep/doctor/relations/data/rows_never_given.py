# SPDX-License-Identifier: Apache-2.0
"""Check REL022."""

from collections.abc import Iterator

from truestep.doctor.check import RISK
from truestep.doctor.experiments.skip_reasons import RelationNotApplicableError
from truestep.doctor.relations.relation import BrokenRelation, StepExperiment, StepRelation


class RowsNeverGiven(StepRelation):
    """A data set holds a row for each index, and gives only some of them, again and again.

    Why: all other rows are never trained on, and what looks like an epoch is a few examples many times.

    Bad:
        class Points(torch.utils.data.Dataset):
            def __init__(self):
                self.points, self.labels = torch.randn(32, 4), torch.arange(32) % 3
            def __len__(self):
                return len(self.points)
            def __getitem__(self, index):
                index = index % 10
                return self.points[index], self.labels[index]
        for x, y in DataLoader(Points(), batch_size=8, shuffle=True):  # here
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()
    Good:
        class Points(torch.utils.data.Dataset):
            def __init__(self):
                self.points, self.labels = torch.randn(32, 4), torch.arange(32) % 3
            def __len__(self):
                return len(self.points)
            def __getitem__(self, index):
                return self.points[index], self.labels[index]
        for x, y in DataLoader(Points(), batch_size=8, shuffle=True):
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()
    Fix: read the row of the index in `__getitem__`.
    Evidence: new, and so preview; what it was tried on stands in benchmarks/doctor/experiments.json.
    """

    code = "REL022"

    def try_out(self, experiment: StepExperiment) -> Iterator[BrokenRelation]:
        """Change rows of what the data set holds in a child, and look at what it gives."""
        from truestep.doctor.experiments.data_set_contents import find_unread_rows

        data = getattr(experiment.plan.iterator, "_dataset", None)
        if data is None:
            raise RelationNotApplicableError("no loader hands over the batch")
        found = find_unread_rows(data, experiment.budget)
        if found is not None:
            message = (
                f"{found.asked} of the data set's {found.length} indexes give {found.different} different things, though "
                f"{found.name!r} has another row for each: most rows are never given. Read the row of the index in __getitem__"
            )
            evidence = {"expected": found.asked, "found": found.different}
            yield BrokenRelation(message, RISK, evidence=evidence)
