# SPDX-License-Identifier: Apache-2.0
"""Check REL010."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from truestep.doctor.check import QUESTION, RISK
from truestep.doctor.relations.relation import BrokenRelation, EvaluationRelation

if TYPE_CHECKING:
    from truestep.doctor.experiments.evaluation_experiment import EvaluationExperiment

_LEAST = 2e-3  # of the figure


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
    Evidence: new; the drawn right programs of tests/programs give it nothing.
    """

    code = "REL010"

    def try_out(self, experiment: "EvaluationExperiment") -> Iterator[BrokenRelation]:
        """Compare what is printed with another seed."""
        from truestep.doctor.experiments.evaluation_child import EvaluationChange

        changed = experiment.changed(EvaluationChange("seed"), _LEAST)
        if changed is None:
            return
        before, after = changed
        message = f"the evaluation prints {before.text} (behind {before.before!r}); with another seed it prints {after.text}"
        if experiment.active_layers:
            message += f". In training mode are {', '.join(experiment.active_layers)}"
        else:
            message += ". Is the evaluation meant to draw random numbers?"
        severity = RISK if experiment.active_layers else QUESTION
        yield BrokenRelation(message, severity, evidence={"expected": before.value, "found": after.value})
