# SPDX-License-Identifier: Apache-2.0
"""Check REL012."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from truestep.doctor.check import QUESTION, RISK
from truestep.doctor.relations.relation import BrokenRelation, StepRelation

if TYPE_CHECKING:
    from truestep.doctor.experiments.step_experiment import StepExperiment


class ResultLost(StepRelation):
    """A layer's result, or a value that the step computes, is used by nothing.

    Why: the model is then another one than it says: without this dropout, this mask or this term of the loss. Usually the
    line after it goes on with the value of before.

    Bad:
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.drop, self.last = nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3)
            def forward(self, x):
                hidden = self.first(x).relu()
                dropped = self.drop(hidden)  # here
                return self.last(hidden)
        net = Net()
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()
    Good:
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.drop, self.last = nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3)
            def forward(self, x):
                hidden = self.first(x).relu()
                dropped = self.drop(hidden)
                return self.last(dropped)
        net = Net()
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()
    Fix: go on with the result, or take the line out.
    Evidence: new, and so preview; what it was tried on stands in benchmarks/doctor/experiments.json.
    """

    code = "REL012"
    needs_batch = False
    num_children = 2

    def try_out(self, experiment: "StepExperiment") -> Iterator[BrokenRelation]:
        """Ask a child which results it lost."""
        from truestep.doctor.experiments.changes import Change
        from truestep.doctor.finding import Place

        assert experiment.base
        found = experiment.changed(Change(follows_results=True))
        for each in found.lost_results:
            layer, _, line = each.rpartition(" ")
            message = (
                f"the result of {layer} is lost: forward computes nothing from it, and does not return it, and it reaches no loss. "
                "Go on with it, or take the layer out"
            )
            yield BrokenRelation(message, RISK, Place.of_text(line), {"layer": layer})
        lines = {Place.of_text(each.rpartition(" ")[2]) for each in found.lost_results}
        unread = {
            each: parameters
            for each, parameters in found.unread_values.items()
            if Place.of_text(each.rpartition(" ")[2]) not in lines
        }
        if unread and not experiment.makes_a_difference(Change(follows_results=True, spoiled=tuple(unread))):
            yield from _told_values(experiment, unread)


def _told_values(experiment: "StepExperiment", unread: dict[str, list[str]]) -> Iterator[BrokenRelation]:
    """Yield each value; what parameters are used for alone is a risk, since they stay untrained."""
    from truestep.doctor.finding import Place

    trained = {
        name.rpartition(": ")[2] for name, each in experiment.base.gradients().items() if each is not None
    }
    for each, parameters in unread.items():
        name, _, line = each.rpartition(" ")
        idle = [one for one in parameters if one not in trained]
        message = f"{name} is computed here and nothing reads it: with other numbers in it the step stays the same. "
        if idle:
            message += f"{idle[0]} has no gradient, and this is all that it is used for. Go on with {name}, or take both out"
        else:
            message += "Is it left over, or meant in the place of what the next lines use?"
        yield BrokenRelation(message, RISK if idle else QUESTION, Place.of_text(line), {"name": name})
