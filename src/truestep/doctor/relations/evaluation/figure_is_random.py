# SPDX-License-Identifier: Apache-2.0
"""Check REL010."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from truestep.doctor.check import QUESTION, RISK
from truestep.doctor.relations.relation import BrokenRelation, EvaluationRelation

if TYPE_CHECKING:
    from truestep.doctor.experiments.evaluation_experiment import EvaluationExperiment


class FigureIsRandom(EvaluationRelation):
    """An evaluation prints another figure with another seed of the random streams.

    Why: dropout or augmentation is at work in it, so that the figure is another one each time, and worse than the
    model is.

    Bad:
        net = nn.Sequential(nn.Linear(4, 32), nn.Dropout(0.5), nn.Linear(32, 3))
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        def evaluate():
            with torch.no_grad():
                total = sum(F.cross_entropy(net(x), y, reduction="sum") for x, y in test_loader)  # here
            print(f"test loss {total / len(test_loader.dataset):.4f}")
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()
        evaluate()
    Good:
        net = nn.Sequential(nn.Linear(4, 32), nn.Dropout(0.5), nn.Linear(32, 3))
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        def evaluate():
            net.eval()
            with torch.no_grad():
                total = sum(F.cross_entropy(net(x), y, reduction="sum") for x, y in test_loader)
            print(f"test loss {total / len(test_loader.dataset):.4f}")
            net.train()
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()
        evaluate()
    Fix: call eval() before the evaluation and train() after it, and evaluate on data that is not augmented.
    Evidence: new, and so preview; what it was tried on stands in benchmarks/doctor/experiments.json.
    """

    code = "REL010"

    def try_out(self, experiment: "EvaluationExperiment") -> Iterator[BrokenRelation]:
        """Compare what is printed with another seed."""
        from truestep.doctor.experiments.evaluation_child import EvaluationChange

        figures = experiment.changed(EvaluationChange("seed"))
        if figures and experiment.moves_with_examples(figures[0]):
            modes = experiment.modes_told()
            more = modes or ". Is the evaluation meant to draw random numbers?"
            yield self.told(figures, "with another seed", RISK if modes else QUESTION, more)
