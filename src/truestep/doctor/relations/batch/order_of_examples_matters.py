# SPDX-License-Identifier: Apache-2.0
"""Check REL001."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from truestep.core.wording import percent_text
from truestep.doctor.check import QUESTION, RISK
from truestep.doctor.relations.relation import BrokenRelation, StepRelation

if TYPE_CHECKING:
    from truestep.doctor.experiments.step_experiment import StepExperiment

# what gives the numbers of a tensor other places; examples meet in these by a wrong shape
_MOVES_NUMBERS = frozenset(
    {"view", "reshape", "unsafe_view", "transpose", "t", "permute", "as_strided", "_reshape_alias"}
)


class OrderOfExamplesMatters(StepRelation):
    """The same examples in another order within their batch give another gradient.

    Why: a mean over examples knows no order, so an example's values are taken for another's, as where view() stands
    for transpose().

    Bad:
        mix = nn.Linear(4, 2)
        opt = torch.optim.SGD(mix.parameters(), lr=0.1)
        for x, y in loader:
            opt.zero_grad()
            columns = x.t().reshape(8, 4)  # here
            F.cross_entropy(mix(columns), y % 2).backward()
            opt.step()
    Good:
        mix = nn.Linear(4, 2)
        opt = torch.optim.SGD(mix.parameters(), lr=0.1)
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(mix(x), y % 2).backward()
            opt.step()
    Fix: exchange dimensions with transpose() or permute(), and use reshape() or view() only to split or join neighbouring ones.
    Evidence: new, and so preview; what it was tried on stands in benchmarks/doctor/experiments.json.
    """

    code = "REL001"

    def try_out(self, experiment: "StepExperiment") -> Iterator[BrokenRelation]:
        """Compare the gradients of the batch in another order."""
        from truestep.doctor.experiments.changes import Change
        from truestep.doctor.experiments.memory_batch import demand_rows_are_examples

        if not experiment.order_matters:
            return
        demand_rows_are_examples(experiment)
        experiment.demand_one_part()
        tolerance, apart = experiment.tolerance, experiment.compared(Change("permuted"))
        mixing = experiment.mixing
        message = (
            f"the same examples in another order give another gradient: that of {apart.parameter} "
            f"differs by {apart.difference:.1%}, and rounding explains {percent_text(tolerance)}"
        )
        evidence = {"found": apart.difference, "tolerance": tolerance, "parameter": apart.parameter}
        if mixing is not None:
            message += f"; examples first meet in {experiment.told_mixing}"
        is_clear = mixing is not None and mixing.operation in _MOVES_NUMBERS
        message += "" if is_clear else ". Is the order meant to matter, as for pairs of neighbours?"
        severity = RISK if is_clear else QUESTION
        yield BrokenRelation(message, severity, experiment.mixing_line, evidence)
