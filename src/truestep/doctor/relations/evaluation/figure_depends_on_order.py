# SPDX-License-Identifier: Apache-2.0
"""Check REL009."""

from collections.abc import Iterator

from truestep.doctor.check import RISK
from truestep.doctor.relations.relation import BrokenRelation, EvaluationExperiment, EvaluationRelation


class FigureDependsOnOrder(EvaluationRelation):
    """An evaluation prints another figure when the same batches come in reverse.

    Why: a figure of all examples knows no order: it is that of the last batch, or of the first ones, or something is
    carried from one batch to the next.

    Bad:
        def evaluate():
            with torch.no_grad():
                for x, y in test_loader:  # here
                    loss = F.cross_entropy(net(x), y)
            print(f"test loss {loss.item():.4f}")
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()
        evaluate()
    Good:
        def evaluate():
            total = 0.0
            with torch.no_grad():
                for x, y in test_loader:
                    total += F.cross_entropy(net(x), y, reduction="sum").item()
            print(f"test loss {total / len(test_loader.dataset):.4f}")
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()
        evaluate()
    Fix: add up over all batches within the loop, and print the mean behind it.
    Evidence: new, and so preview; what it was tried on stands in benchmarks/doctor/experiments.json.
    """

    code = "REL009"

    def try_out(self, experiment: EvaluationExperiment) -> Iterator[BrokenRelation]:
        """Compare what is printed with the batches in reverse."""
        from truestep.doctor.experiments.evaluation_child import EvaluationChange

        if figures := experiment.changed(EvaluationChange("reversed")):
            experiment.demand_no_draws()
            yield self.told(figures, "with the same batches in reverse", RISK)
