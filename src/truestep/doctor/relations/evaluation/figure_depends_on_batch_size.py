# SPDX-License-Identifier: Apache-2.0
"""Check REL008."""

from collections.abc import Iterator

from truestep.doctor.check import RISK
from truestep.doctor.experiments.skip_reasons import ExperimentNotTriedError
from truestep.doctor.relations.relation import BrokenRelation, EvaluationExperiment, EvaluationRelation


class FigureDependsOnBatchSize(EvaluationRelation):
    """An evaluation prints another figure when the same examples are cut into batches of another size.

    Why: a figure of the examples is no matter of their cut: it is a mean of means over batches of unequal size, a sum
    over a wrong count or over some batches alone, leaves one out, or the model normalises by the batch.

    Bad:
        def evaluate():
            with torch.no_grad():
                correct = 0
                for x, y in test_loader:  # here
                    correct += (net(x).argmax(1) == y).sum().item() / len(y)
            print(f"accuracy {correct / len(test_loader.dataset):.4f}")
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()
        evaluate()
    Good:
        def evaluate():
            with torch.no_grad():
                correct = 0
                for x, y in test_loader:
                    correct += (net(x).argmax(1) == y).sum().item()
            print(f"accuracy {correct / len(test_loader.dataset):.4f}")
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()
        evaluate()
    Fix: add up over examples, count the examples, divide once at the end; call eval() before.
    Evidence: new, and so preview; what it was tried on stands in benchmarks/doctor/experiments.json.
    """

    code = "REL008"

    def try_out(self, experiment: EvaluationExperiment) -> Iterator[BrokenRelation]:
        """Compare what is printed with the examples cut into other batches."""
        from truestep.doctor.experiments.evaluation_child import EvaluationChange

        num_seen, plan = experiment.num_batches_seen, experiment.plan
        if num_seen < len(plan.cut) and (figures := experiment.figure_divided_by_length()):
            changed = f"it takes {num_seen} of {len(plan.cut)} batches, and where the loader only says that it has more"
            yield self.told(
                figures, changed, RISK, ". Divide by what was added up, or go through all batches"
            )
            return
        if experiment.changed(EvaluationChange("reversed")) is not None:
            experiment.demand_no_draws()
            raise ExperimentNotTriedError(
                "mend REL009 first, because the order of the batches alone changes the figure"
            )
        if figures := experiment.changed(EvaluationChange("cut")):
            experiment.demand_no_draws()
            changed = f"with the same examples in batches of {plan.other_size} instead of {len(plan.cut[0])}"
            yield self.told(figures, changed, RISK, experiment.training_mode_note())
