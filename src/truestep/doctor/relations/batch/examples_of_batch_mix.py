# SPDX-License-Identifier: Apache-2.0
"""Check REL002."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from truestep.core.text_formatting import percent_text
from truestep.doctor.check import QUESTION, RISK
from truestep.doctor.experiments.skip_reasons import ExperimentNotTriedError, RelationNotApplicableError
from truestep.doctor.relations.relation import BrokenRelation, StepExperiment, StepRelation

if TYPE_CHECKING:
    from truestep.doctor.relations.mixing import Mixing

# what gives a row for each row and is no figure of the whole batch: examples meet in these by a wrong dimension
_BY_DIMENSION = frozenset(
    {
        *("softmax", "log_softmax", "view", "reshape", "transpose", "permute", "unsafe_view", "bmm"),
        *("scaled_dot_product_attention", "scaled_dot_product_flash_attention_for_cpu", "lstm", "gru"),
    }
)


class ExamplesOfBatchMix(StepRelation):
    """The gradient of a batch is not the mean of the gradients of its two halves.

    Why: an example's share of the gradient then depends on the others that happen to be in its batch, by a wrong
    dimension or by broadcasting. It does not apply where it shows that examples are meant to meet.

    Bad:
        head = nn.Linear(4, 1)
        opt = torch.optim.SGD(head.parameters(), lr=0.1)
        for x, y in loader:
            opt.zero_grad()
            error = head(x) - torch.tanh(x.sum(1))  # here
            error.square().mean().backward()
            opt.step()
    Good:
        head = nn.Linear(4, 1)
        opt = torch.optim.SGD(head.parameters(), lr=0.1)
        for x, y in loader:
            opt.zero_grad()
            error = head(x).squeeze(1) - torch.tanh(x.sum(1))
            error.square().mean().backward()
            opt.step()
    Fix: where two shapes are named that were spread over one another, give both one shape; of a softmax or a norm, name the
        dimension of features. A loss that is meant to be a figure of the whole batch, as Dice is, stays as it is: write
        `# truestep: ignore[REL002]` there.
    Evidence: new, and so preview; what it was tried on stands in benchmarks/doctor/experiments.json.
    """

    code = "REL002"
    num_children = 2

    def try_out(self, experiment: StepExperiment) -> Iterator[BrokenRelation]:
        """Compare the batch's gradients with the mean of its halves' gradients."""
        from truestep.doctor.experiments.in_memory_batch import demand_rows_are_examples
        from truestep.doctor.experiments.step_experiment import mixing_is_meant

        tolerance = experiment.tolerance
        if experiment.plan.examples.count < 4:
            raise RelationNotApplicableError("the batch holds fewer than four examples")
        if not experiment.examples_mix:
            return
        apart = experiment.halves()
        experiment.demand_one_part()
        mixing = experiment.mixing
        demand_rows_are_examples(experiment)
        if mixing_is_meant(experiment):
            assert mixing is not None
            raise RelationNotApplicableError(f"examples are meant to meet: {mixing.meaning}")
        is_clear = mixing is not None and mixing.meaning is None and _is_accidental_mixing(mixing)
        if not is_clear and experiment.order_matters:
            raise ExperimentNotTriedError("the order of the examples matters, so the halves' places do, too")
        message = (
            f"the batch's gradient is not the mean of its halves' gradients: that of {apart.parameter} is off by "
            f"{apart.difference:.1%}, and rounding explains {percent_text(tolerance)}"
        )
        message += f"; examples first meet in {experiment.mixing_text}" if mixing is not None else ""
        if not is_clear:
            meaning = mixing.meaning if mixing is not None else None
            message += f". Is it meant that {meaning or 'the loss is a figure of the whole batch'}?"
        evidence = {"found": apart.difference, "tolerance": tolerance, "parameter": apart.parameter}
        yield BrokenRelation(message, RISK if is_clear else QUESTION, experiment.mixing_line, evidence)


def _is_accidental_mixing(mixing: "Mixing") -> bool:
    """Tell whether an operation lets examples meet by a dimension or a shape that was not meant."""
    return mixing.is_broadcast_table or mixing.operation in _BY_DIMENSION
