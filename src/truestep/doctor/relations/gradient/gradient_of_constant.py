# SPDX-License-Identifier: Apache-2.0
"""Check REL021."""

from collections.abc import Iterator

from truestep.doctor.check import RISK
from truestep.doctor.relations.relation import BrokenRelation, FollowedRelation, StepExperiment


class GradientOfConstant(FollowedRelation):
    """A loss is made of the gradient of a number that is the same whatever the inputs are.

    Why: the shares of all classes sum to 1, so their sum has no gradient but rounding. A penalty on it is always zero.

    Bad:
        for x, y in loader:
            x.requires_grad_()
            out = net(x)
            slope = torch.autograd.grad(out.softmax(1).sum(), x, create_graph=True)[0]  # here
            opt.zero_grad()
            (F.cross_entropy(out, y) + slope.square().mean()).backward()
            opt.step()
    Good:
        for x, y in loader:
            x.requires_grad_()
            out = net(x)
            chosen = out.softmax(1).gather(1, y[:, None])
            slope = torch.autograd.grad(chosen.sum(), x, create_graph=True)[0]
            opt.zero_grad()
            (F.cross_entropy(out, y) + slope.square().mean()).backward()
            opt.step()
    Fix: take the gradient of one share an example, as by `p[torch.arange(len(y)), y]` and not `p[:, y]`, or of the loss.
    Evidence: new, and so preview; what it was tried on stands in benchmarks/doctor/experiments.json.
    """

    code = "REL021"
    follows = "operands"

    def try_out(self, experiment: StepExperiment) -> Iterator[BrokenRelation]:
        """Ask a child for gradients that are rounding alone."""
        found = self.found(experiment, "num_gradients", "the step takes no gradient for its loss")
        for line in found["flat"]:
            message = (
                "the gradient that is taken here for the loss is rounding alone: what it is of stays the same whatever the inputs "
                "are, as a sum of all shares of a softmax does. Take that of one share an example, or of the loss"
            )
            yield self.at(line, message, RISK)
