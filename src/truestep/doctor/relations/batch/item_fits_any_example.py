# SPDX-License-Identifier: Apache-2.0
"""Check REL005."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from truestep.doctor.check import QUESTION, RISK
from truestep.doctor.relations.relation import BrokenRelation, StepRelation

if TYPE_CHECKING:
    from truestep.doctor.experiments.step_experiment import StepExperiment


class ItemFitsAnyExample(StepRelation):
    """An item's values given to other examples of the batch change no gradient, though other values do.

    Why: which label belongs to which example is then nothing to the training: both meet in a mean or a table of all
    with all, and the model learns their average.

    Bad:
        head = nn.Linear(4, 1)
        opt = torch.optim.SGD(head.parameters(), lr=0.1)
        for x, y in loader:  # here
            opt.zero_grad()
            (head(x) - y.float()).square().mean().backward()  # (8, 1) against (8,)
            opt.step()
    Good:
        head = nn.Linear(4, 1)
        opt = torch.optim.SGD(head.parameters(), lr=0.1)
        for x, y in loader:
            opt.zero_grad()
            (head(x).squeeze(1) - y.float()).square().mean().backward()
            opt.step()
    Fix: bring both to one shape, compare example by example, and take the mean last.
    Evidence: new, and so preview; what it was tried on stands in benchmarks/doctor/experiments.json.
    """

    code = "REL005"
    num_children = 6

    def try_out(self, experiment: "StepExperiment") -> Iterator[BrokenRelation]:
        """Compare the gradients with an item's values exchanged between examples."""
        from truestep.doctor.experiments.full_precision import HALF_PRECISION
        from truestep.doctor.experiments.memory_batch import demand_rows_are_examples
        from truestep.doctor.experiments.not_tried import ExperimentNotTriedError
        from truestep.doctor.experiments.slopes import in_full_precision

        experiment.demand_effect()
        fitting = self._fitting(experiment)
        if fitting and experiment.base.coarsest > HALF_PRECISION:
            experiment = in_full_precision(experiment)  # a small effect is lost in its roundings
            if experiment.base.coarsest > HALF_PRECISION:
                raise ExperimentNotTriedError(
                    "the step computes in half precision, which hides small effects"
                )
            fitting = self._fitting(experiment)
        if not fitting:
            return
        demand_rows_are_examples(experiment)
        is_target = any(experiment.numbers_each(each) == 1 for each in fitting)
        message = (
            f"values of {' and of '.join(f'item {each}' for each in fitting)} given to other examples of the batch change no "
            "gradient, though one value for all does: which example they belong to does not matter"
        )
        message += "" if is_target else ". Is it meant to come without its partner?"
        evidence = {"items": fitting, "tolerance": experiment.tolerance}
        yield BrokenRelation(message, RISK if is_target else QUESTION, evidence=evidence)

    def _fitting(self, experiment: "StepExperiment") -> list[str]:
        """Return the items of which it does not matter which example has them."""
        touched = [each for each in experiment.varied_items if each in experiment.base.touched]
        used = [each for each in touched if len(touched) > 1 and experiment.has_effect(each)]
        fitting = [each for each in used if self._fits_any(experiment, each)] if len(used) > 1 else []
        # where no examples meet no shape is to blame: a codebook may have one code for all of them by now
        return fitting if fitting and experiment.examples_mix else []

    def _fits_any(self, experiment: "StepExperiment", item: str) -> bool:
        from truestep.doctor.experiments.changes import Change

        # of few classes one exchange may give all examples what is as good to them
        for each in (Change("exchanged", item), Change("exchanged", item, repeated=True)):
            if experiment.goes_another_way(each):
                return False
            if experiment.compared(each).difference > experiment.tolerance:
                return False
        return True
