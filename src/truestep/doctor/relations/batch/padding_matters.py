# SPDX-License-Identifier: Apache-2.0
"""Check REL016."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from truestep.doctor.check import QUESTION
from truestep.doctor.relations.relation import BrokenRelation, StepRelation

if TYPE_CHECKING:
    from truestep.doctor.experiments.step_experiment import StepExperiment
    from truestep.doctor.relations.trials.tokens import Sequences


class PaddingMatters(StepRelation):
    """Other values at the positions that a mask leaves out change the gradient.

    Why: sequences are then trained on what fills them up, and the same sequence gives another result beside longer ones.

    Bad:
        short = torch.arange(6) < torch.randint(2, 7, (32, 1))
        short[::4] = True
        rows = TensorDataset(torch.randn(32, 6, 4), data.tensors[1], short)
        series = DataLoader(rows, batch_size=8, shuffle=True)
        for x, y, mask in series:  # here
            hidden = net[0](x).cumsum(1).flip(1)
            pooled = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
            opt.zero_grad()
            F.cross_entropy(net[2](pooled), y).backward()
            opt.step()
    Good:
        short = torch.arange(6) < torch.randint(2, 7, (32, 1))
        short[::4] = True
        rows = TensorDataset(torch.randn(32, 6, 4), data.tensors[1], short)
        series = DataLoader(rows, batch_size=8, shuffle=True)
        for x, y, mask in series:
            hidden = net[0](x).cumsum(1)
            pooled = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
            opt.zero_grad()
            F.cross_entropy(net[2](pooled), y).backward()
            opt.step()
    Fix: give the mask to attention, pool over real positions alone, and leave the others out of the loss.
    Evidence: new, and so preview; what it was tried on stands in benchmarks/doctor/experiments.json.
    """

    code = "REL016"
    num_children = 2

    def try_out(self, experiment: "StepExperiment") -> Iterator[BrokenRelation]:
        """Compare the gradients with other values at padded positions."""
        from truestep.doctor.experiments.changes import Change

        found = self._padding(experiment)
        tolerance = experiment.tolerance
        experiment.demand_effect()
        items = self._inputs(experiment, found)
        change = Change("other padding", items=items)
        another_way = experiment.goes_another_way(change)
        apart = 0.0 if another_way else experiment.compared(change).difference
        if not another_way and apart <= tolerance:
            return
        said = "the step goes another way" if another_way else f"a gradient differs by {apart:.1%}"
        message = (
            f"item {found.mask} tells which positions are real, and with other values at the others, in "
            f"{' and '.join(f'item {each}' for each in items)}, {said}: padding is trained on. Does the mask mean something else?"
        )
        evidence = {"items": list(items), "mask": found.mask, "found": apart, "tolerance": tolerance}
        yield BrokenRelation(message, QUESTION, evidence=evidence)

    def _padding(self, experiment: "StepExperiment") -> "Sequences":
        """Return where the batch is padded, in a mask of which nothing else is as likely.

        Raises:
            RelationNotApplicableError: no such mask is known.
        """
        from truestep.doctor.experiments.not_tried import RelationNotApplicableError
        from truestep.doctor.relations.trials.tokens import find_padding

        if not experiment.plan.is_from_loader:
            raise RelationNotApplicableError("no loader hands over a mask of padding")
        found = find_padding(experiment.plan.examples)
        if isinstance(found, str):
            raise RelationNotApplicableError(found)
        # a prompt's mask is padded in every example, since each has a response
        if found.mask is None or not found.is_last or bool(found.padding.any(1).all()):
            raise RelationNotApplicableError("the batch's mask may stand for something else than padding")
        if found.mask not in experiment.base.touched:
            raise RelationNotApplicableError("the step does not use the mask")
        return found

    def _inputs(self, experiment: "StepExperiment", found: "Sequences") -> tuple[str, ...]:
        """Return the items that may be changed: numbers, and tokens that are embedded, and no labels of any kind.

        Raises:
            RelationNotApplicableError: there is none.
        """
        from truestep.doctor.experiments.not_tried import RelationNotApplicableError

        operations = experiment.base.operations
        items = tuple(
            each
            for each in found.items
            if each != found.mask
            and each in operations
            and (
                experiment.plan.examples.leaves[each].is_floating_point()
                or set(operations[each]) == {"embedding"}
            )
        )
        if not items:
            raise RelationNotApplicableError("no padded item is known as an input of the model")
        return items
