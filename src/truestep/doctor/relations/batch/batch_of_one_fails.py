# SPDX-License-Identifier: Apache-2.0
"""Check REL006."""

import re
from collections.abc import Iterator

from truestep.doctor.check import ADVICE, RISK
from truestep.doctor.experiments.skip_reasons import RelationNotApplicableError
from truestep.doctor.relations.relation import BrokenRelation, StepExperiment, StepRelation

_NORMALISED = "more than 1 value per channel"  # what batch normalisation says of it, which is meant


class BatchOfOneFails(StepRelation):
    """A batch of a single example ends the training with an error.

    Why: the last batch of an epoch may hold one, and so may a use of the model: squeeze() without a dimension takes
    away the examples' dimension, too, and a shape with the batch's size in it fits no other size.

    Bad:
        head = nn.Linear(4, 3)
        opt = torch.optim.SGD(head.parameters(), lr=0.1)
        for x, y in loader:  # here
            opt.zero_grad()
            F.cross_entropy(head(x).squeeze(), y.tolist() and y).backward()
            opt.step()
    Good:
        head = nn.Linear(4, 3)
        opt = torch.optim.SGD(head.parameters(), lr=0.1)
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(head(x), y).backward()
            opt.step()
    Fix: name the dimension that is to go, as in squeeze(1), and index with lists or slices. Take a size from the batch, as in
        x.view(len(x), -1), and not from its usual number.
    Evidence: constantinpape/torch-em at 6a9fecb breaks it by torch_em/loss/wrapper.py:53, and its fix 217760c keeps it.
    """

    code = "REL006"
    is_preview = False

    def try_out(self, experiment: StepExperiment) -> Iterator[BrokenRelation]:
        """Go on with the first example alone."""
        from truestep.doctor.experiments.batch_changes import Change
        from truestep.doctor.experiments.load_replay import has_uniform_batches

        assert experiment.base.steps
        if not experiment.plan.is_from_loader:
            raise RelationNotApplicableError("no loader cuts the batches, so that none of one example comes")
        error = experiment.child(Change("one")).error
        if error is None or _NORMALISED in error:
            return
        if (
            has_uniform_batches(experiment.plan.iterator)
            and experiment.child(Change("one collated")).error is None
        ):
            return  # it was padded for others of the batch
        comes = experiment.has_last_batch_of_one()
        when = "the last batch of an epoch holds one" if comes else "none comes in this training"
        message = f"a batch of one example raises {error.splitlines()[0][:200]}; {when}"
        if re.search(rf"\b{experiment.plan.examples.count}\b", error):
            message += f". Is the size of the other batches, {experiment.plan.examples.count}, written out in a shape?"
        yield BrokenRelation(message, RISK if comes else ADVICE, evidence={"error": error[:500]})
