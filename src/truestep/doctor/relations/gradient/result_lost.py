# SPDX-License-Identifier: Apache-2.0
"""Check REL012."""

from collections.abc import Iterator

from truestep.doctor.check import QUESTION, RISK
from truestep.doctor.relations.relation import BrokenRelation, FollowedRelation, StepExperiment


class ResultLost(FollowedRelation):
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
    follows = "results"
    num_children = 2

    def try_out(self, experiment: StepExperiment) -> Iterator[BrokenRelation]:
        """Ask a child which results it lost."""
        assert experiment.base
        found = self.found(experiment)
        for each in found["lost"]:
            layer, _, line = each.rpartition(" ")
            message = (
                f"the result of {layer} is lost: forward computes nothing from it, and does not return it, and it reaches no loss. "
                "Go on with it, or take the layer out"
            )
            yield self.at(line, message, RISK, {"layer": layer})
        lines = {each.rpartition(" ")[2] for each in found["lost"]}
        unread = {
            each: parameters
            for each, parameters in found["unread"].items()
            if each.rpartition(" ")[2] not in lines
        }
        if unread and not self.makes_a_difference(experiment, spoiled=tuple(unread)):
            yield from self._report_unread_values(experiment, unread)

    def _report_unread_values(
        self, experiment: StepExperiment, unread: dict[str, list[str]]
    ) -> Iterator[BrokenRelation]:
        """Yield each value; what parameters are used for alone is a risk, since they stay untrained."""
        given = experiment.base.gradients().items()
        trained = {name.rpartition(": ")[2] for name, each in given if each is not None}
        for each, parameters in unread.items():
            name, _, line = each.rpartition(" ")
            idle = [one for one in parameters if one not in trained]
            message = f"{name} is computed here and nothing reads it: with other numbers in it the step stays the same. "
            if idle:
                message += f"{idle[0]} has no gradient, and this is all that it is used for. Go on with {name}, or take both out"
            else:
                message += "Is it left over, or meant in the place of what the next lines use?"
            yield self.at(line, message, RISK if idle else QUESTION, {"name": name})
