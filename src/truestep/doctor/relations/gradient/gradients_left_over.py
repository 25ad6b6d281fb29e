# SPDX-License-Identifier: Apache-2.0
"""Check REL007."""

from collections.abc import Iterator

from truestep.core.text_formatting import percent_text
from truestep.doctor.check import RISK
from truestep.doctor.experiments.skip_reasons import ExperimentNotTriedError
from truestep.doctor.relations.relation import BrokenRelation, StepExperiment, StepRelation


class GradientsLeftOver(StepRelation):
    """Gradients that were there before the batch are part of its step.

    Why: each step then uses the sum of all earlier batches' gradients, which points to where they have led already.

    Bad:
        class Trainer:
            def __init__(self, net, opt):
                self.net, self.opt = net, opt
            def update(self, x, y, clear):
                if clear:
                    self.opt.zero_grad()
                F.cross_entropy(self.net(x), y).backward()
                self.opt.step()
        trainer = Trainer(net, opt)
        for number, (x, y) in enumerate(loader):  # here
            trainer.update(x, y, clear=number == 0)
    Good:
        class Trainer:
            def __init__(self, net, opt):
                self.net, self.opt = net, opt
            def update(self, x, y):
                self.opt.zero_grad()
                F.cross_entropy(self.net(x), y).backward()
                self.opt.step()
        trainer = Trainer(net, opt)
        for x, y in loader:
            trainer.update(x, y)
    Fix: call zero_grad() of the optimizer once for each step; of a closure, which LBFGS calls several times, in the closure.
    Evidence: new, and so preview; what it was tried on stands in benchmarks/doctor/experiments.json.
    """

    code = "REL007"
    needs_batch = False

    def try_out(self, experiment: StepExperiment) -> Iterator[BrokenRelation]:
        """Compare the gradients where those of before are cleared beforehand."""
        from truestep.doctor.experiments.batch_changes import Change
        from truestep.doctor.experiments.step_experiment import compare_closure_calls

        tolerance = experiment.tolerance
        experiment.demand_effect()
        if not experiment.plan.steps_together:
            raise ExperimentNotTriedError(
                "one optimizer steps more often than another, whose gradients may wait for its step"
            )
        apart, where = (
            experiment.compare_step_by_step(Change(cleared=True)),
            "that were there before the batch",
        )
        if apart.difference <= max(tolerance, 1e-3) and experiment.base.calls_closure:
            apart, where = compare_closure_calls(experiment), "of a closure's first call in a step"
        if apart.difference <= max(tolerance, 1e-3):
            return
        changes = "change its step" if where.endswith("batch") else "are part of its second call"
        message = (
            f"gradients {where} {changes}: without them that of {apart.parameter} differs by "
            f"{apart.difference:.1%}, and rounding explains {percent_text(tolerance)}"
        )
        evidence = {"found": apart.difference, "tolerance": tolerance, "parameter": apart.parameter}
        yield BrokenRelation(message, RISK, evidence=evidence)
