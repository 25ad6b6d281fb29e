# SPDX-License-Identifier: Apache-2.0
"""Check REL003."""

from collections.abc import Iterator

from truestep.doctor.check import QUESTION
from truestep.doctor.relations.relation import BrokenRelation, StepExperiment, StepRelation

_LEAST_FACTOR = 1.1


class GradientGrowsWithBatch(StepRelation):
    """A batch in which every example stands twice gives another gradient than the batch.

    Why: a sum over examples makes the rate depend on the batch size, and the last, smaller batch counts less; a sum
    of some terms and a mean of others shifts their weights, too.

    Bad:
        for x, y in loader:  # here
            opt.zero_grad()
            loss = F.cross_entropy(net(x), y) + 0.1 * net(x).square().sum()
            loss.backward()
            opt.step()
    Good:
        for x, y in loader:
            opt.zero_grad()
            loss = F.cross_entropy(net(x), y) + 0.1 * net(x).square().mean()
            loss.backward()
            opt.step()
    Fix: take the mean over examples in every term, or divide sums by the number of examples.
    Evidence: new, and so preview; what it was tried on stands in benchmarks/doctor/experiments.json.
    """

    code = "REL003"

    def try_out(self, experiment: StepExperiment) -> Iterator[BrokenRelation]:
        """Compare the gradients of the batch with every example twice."""
        from truestep.doctor.experiments.in_memory_batch import demand_rows_are_examples

        tolerance = experiment.tolerance
        apart = experiment.compare_doubled_batch()
        if apart.difference <= max(tolerance, _LEAST_FACTOR - 1):
            return
        _demand_no_count_in_batch(experiment)
        if experiment.examples_mix:
            demand_rows_are_examples(experiment)
        experiment.demand_one_part()
        evidence = {"found": apart.difference, "tolerance": tolerance, "parameter": apart.parameter}
        if apart.factor is not None:
            message = (
                f"with every example twice the gradient is {apart.factor:.3g} times as large. "
                "Is a sum over the batch meant, with a rate that was chosen for this batch size?"
            )
        else:
            message = (
                f"with every example twice the gradient of {apart.parameter} differs by "
                f"{apart.difference:.1%}, others less: "
                "terms of the loss are sums over the batch, others means. "
                "Is that meant, with weights of the terms for this batch size?"
            )
        yield BrokenRelation(message, QUESTION, evidence=evidence)


def _demand_no_count_in_batch(experiment: StepExperiment) -> None:
    """Make sure that the batch holds no count of its rows or tokens, which stays what it was where they double."""
    from truestep.doctor.experiments.example_count_detection import batch_numbers_by_name
    from truestep.doctor.experiments.skip_reasons import ExperimentNotTriedError

    for name in batch_numbers_by_name(experiment.plan.examples):
        raise ExperimentNotTriedError(
            f"the batch has a number beside its rows ({name or 'itself'}), and the loss may be divided by it"
        )
