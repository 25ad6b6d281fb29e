# SPDX-License-Identifier: Apache-2.0
"""Check REL016."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from truestep.doctor.check import QUESTION
from truestep.doctor.experiments.skip_reasons import ExperimentNotTriedError, RelationNotApplicableError
from truestep.doctor.relations.relation import BrokenRelation, StepExperiment, StepRelation

if TYPE_CHECKING:
    from truestep.doctor.relations.trials.tokens import Sequences


class PaddingMatters(StepRelation):
    """Other values at the positions that a mask leaves out change the gradient, or longer padding behind sequences does.

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

    def try_out(self, experiment: StepExperiment) -> Iterator[BrokenRelation]:
        """Compare the gradients with other values at padded positions, or where no mask tells these, with more of them."""
        if not experiment.plan.is_from_loader:
            raise RelationNotApplicableError("no loader hands over padded sequences")
        told = self._padding_by_mask(experiment)
        items = () if isinstance(told, str) else self._changeable_items(experiment, told)
        if items and not isinstance(told, str):
            yield from self._try_other_padding(experiment, told, items)
        else:
            why = told if isinstance(told, str) else "no padded item is known as an input of the model"
            yield from self._try_longer_padding(experiment, why)

    def _try_other_padding(
        self, experiment: StepExperiment, found: "Sequences", items: tuple[str, ...]
    ) -> Iterator[BrokenRelation]:
        from truestep.doctor.experiments.batch_changes import Change

        tolerance = experiment.tolerance
        experiment.demand_effect()
        change = Change("other padding", items=items)
        another_way = experiment.goes_another_way(change)
        apart = 0.0 if another_way else experiment.compared(change).difference
        if not another_way and apart <= tolerance:
            return
        said = "the step goes another way" if another_way else f"a gradient differs by {apart:.1%}"
        message = (
            f"item {found.mask} tells which positions are real, and with other values at the others, in "
            f"{' and '.join(f'item {each}' for each in items)}, {said}: padding is trained on. "
            "Does the mask tell of something else than padding?"
        )
        evidence = {"items": list(items), "mask": found.mask, "found": apart, "tolerance": tolerance}
        yield BrokenRelation(message, QUESTION, evidence=evidence)

    def _try_longer_padding(self, experiment: StepExperiment, why_no_mask: str) -> Iterator[BrokenRelation]:
        from truestep.doctor.experiments.batch_changes import Change
        from truestep.doctor.relations.trials.tokens import (
            LEAST_CHANGE,
            MORE_POSITIONS,
            find_unmasked_padding,
        )

        found = find_unmasked_padding(experiment.plan.examples)
        if isinstance(found, str):
            raise RelationNotApplicableError(f"{why_no_mask}, and {found}")
        tolerance = max(experiment.tolerance, LEAST_CHANGE)
        experiment.demand_effect()
        if experiment.base.draws:
            raise ExperimentNotTriedError("random numbers are drawn, others for longer sequences")
        if experiment.goes_another_way(Change("longer padding")):
            raise ExperimentNotTriedError("the step takes no longer sequences")
        apart = experiment.compared(Change("longer padding")).difference
        if apart <= tolerance:
            return
        message = (
            f"with {MORE_POSITIONS} more positions of padding behind all sequences, in "
            f"{' and '.join(f'item {each}' for each in found.items)}, a gradient differs by {apart:.1%}: padding is trained on, "
            "and a sequence gives another result beside longer ones. Is padding meant to count, as a blank edge of an image may?"
        )
        evidence = {"items": list(found.items), "found": apart, "tolerance": tolerance}
        yield BrokenRelation(message, QUESTION, evidence=evidence)

    def _padding_by_mask(self, experiment: StepExperiment) -> "Sequences | str":
        """Return where the batch is padded, in a mask of which nothing else is as likely; why no such mask is known."""
        from truestep.doctor.relations.trials.tokens import find_padding

        found = find_padding(experiment.plan.examples)
        if isinstance(found, str):
            return found
        # a prompt's mask is padded in every example, since each has a response
        if found.mask is None or not found.is_last or bool(found.padding.any(1).all()):
            return "the batch's mask may stand for something else than padding"
        if found.mask not in experiment.base.touched:
            return "the step does not use the mask"
        return found

    def _changeable_items(self, experiment: StepExperiment, found: "Sequences") -> tuple[str, ...]:
        """Return the items that may be changed: numbers, and tokens that are embedded, and no labels of any kind."""
        operations = experiment.base.operations
        return tuple(
            each
            for each in found.items
            if each != found.mask
            and each in operations
            and (
                experiment.plan.examples.leaves[each].is_floating_point()
                or set(operations[each]) == {"embedding"}
            )
        )
