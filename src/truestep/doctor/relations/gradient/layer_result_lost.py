# SPDX-License-Identifier: Apache-2.0
"""Check REL012."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from truestep.doctor.check import RISK
from truestep.doctor.relations.relation import BrokenRelation, StepRelation

if TYPE_CHECKING:
    from truestep.doctor.experiments.step_experiment import StepExperiment


class LayerResultLost(StepRelation):
    """A model's forward calls a layer, and nothing is computed from the layer's result.

    Why: the model is then another one than it says: without this dropout, norm or projection. Usually the line after it
    goes on with the value of before.

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
    Fix: go on with the layer's result, or take the layer out.
    Evidence: new, and so preview; what it was tried on stands in benchmarks/doctor/experiments.json.
    """

    code = "REL012"
    needs_batch = False

    def try_out(self, experiment: "StepExperiment") -> Iterator[BrokenRelation]:
        """Ask a child which results it lost."""
        from truestep.doctor.experiments.changes import Change
        from truestep.doctor.finding import Place

        assert experiment.base
        for each in experiment.changed(Change(follows_results=True)).lost_results:
            layer, _, line = each.rpartition(" ")
            message = (
                f"the result of {layer} is lost: forward computes nothing from it, and does not return it, and it reaches no loss. "
                "Go on with it, or take the layer out"
            )
            yield BrokenRelation(message, RISK, Place.of_text(line), {"layer": layer})
