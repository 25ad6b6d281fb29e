# SPDX-License-Identifier: Apache-2.0
"""Check REL004."""

from collections.abc import Iterator

from truestep.doctor.check import RISK
from truestep.doctor.relations.relation import BrokenRelation, StepExperiment, StepRelation


class ItemWithoutEffect(StepRelation):
    """An item of the batch is computed with, and its values change no gradient.

    Why: labels, masks, weights or lengths that change nothing are lost on their way: overwritten, multiplied by zero,
    or cut off the graph.

    Bad:
        weighted = DataLoader(TensorDataset(*data.tensors, torch.rand(32)), batch_size=8, shuffle=True)
        for x, y, weight in weighted:  # here
            opt.zero_grad()
            loss = F.cross_entropy(net(x), y, reduction="none")
            (loss * weight).mean()
            loss.mean().backward()
            opt.step()
    Good:
        weighted = DataLoader(TensorDataset(*data.tensors, torch.rand(32)), batch_size=8, shuffle=True)
        for x, y, weight in weighted:
            opt.zero_grad()
            loss = F.cross_entropy(net(x), y, reduction="none")
            (loss * weight).mean().backward()
            opt.step()
    Fix: use the result that holds the item in the loss, or take the item out of the data set.
    Evidence: drawn programs 465, 474 and 582 of benchmarks/doctor/experiments.py, whose author did not know of it: torch 2.13's
        orthogonal parametrization under weight decay makes a layer's weight zero in one step, so that no input has any effect.
    """

    code = "REL004"
    is_preview = False
    num_children = 5

    def try_out(self, experiment: StepExperiment) -> Iterator[BrokenRelation]:
        """Compare the gradients with the first example's value of an item for all."""
        from truestep.doctor.experiments.batch_changes import Change

        tolerance = experiment.tolerance
        experiment.demand_effect()
        looked_at = set(experiment.base.touched) - set(experiment.base.compared)
        for item in experiment.varied_items:
            # one that the step leaves out altogether is a name or number of the example; one that is compared alone is for a figure
            if item not in looked_at or experiment.has_effect(item):
                continue
            if experiment.has_effect_by_other_values(item):
                continue
            made = experiment.plan.at_use is not None
            if made and experiment.makes_a_difference(Change("constant", item)):
                continue  # a constant that the script adds to the loss
            apart = experiment.compared(Change("constant", item))
            message = (
                f"item {item} of the batch has no effect: made the same for all examples, it changes the gradients by "
                f"{apart.difference:.1g}. The step computes with it, and the result is lost"
            )
            evidence = {"item": item, "found": apart.difference, "tolerance": tolerance}
            yield BrokenRelation(message, RISK, evidence=evidence)
