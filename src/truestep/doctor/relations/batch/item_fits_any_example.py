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
    Evidence: new; the drawn right programs of tests/programs give it nothing.
    """

    code = "REL005"

    def try_out(self, experiment: "StepExperiment") -> Iterator[BrokenRelation]:
        """Compare the gradients with an item's values exchanged between examples."""
        from truestep.doctor.experiments.changes import Change

        tolerance = experiment.tolerance
        used = [each for each in experiment.varied_items if each in experiment.base.touched]
        for item in used if len(used) > 1 else ():
            try_constant = experiment.child(Change("constant", item))
            exchanged = experiment.child(Change("exchanged", item))
            whole = len(experiment.base.steps)
            if any(each.error or len(each.steps) != whole for each in (try_constant, exchanged)):
                continue
            apart = experiment.compared(Change("exchanged", item))
            moved = experiment.compared(Change("constant", item))
            if apart.difference > tolerance or moved.difference <= tolerance:
                continue
            is_target = experiment.numbers_each(item) == 1
            message = (
                f"item {item} of the batch given to other examples changes no gradient "
                f"(by {apart.difference:.1g}), though the same "
                f"value for all changes it by {moved.difference:.1%}: which example it belongs to does not matter"
            )
            message += "" if is_target else ". Is it meant to come without its partner?"
            evidence = {"item": item, "found": apart.difference, "expected": moved.difference}
            yield BrokenRelation(message, RISK if is_target else QUESTION, evidence=evidence)
