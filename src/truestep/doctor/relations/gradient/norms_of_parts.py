# SPDX-License-Identifier: Apache-2.0
"""Check REL026."""

from collections.abc import Iterator

from truestep.doctor.check import RISK
from truestep.doctor.relations.relation import BrokenRelation, FollowedRelation, StepExperiment


class NormsOfParts(FollowedRelation):
    """A penalty wants each norm of a gradient to be a number, and there are more norms than outputs.

    Why: the norm is that of a pixel or a step of time, so each of them is pulled to what the whole example should have.

    Bad:
        for x, y in loader:
            mixed = x.reshape(-1, 2, 2).requires_grad_()
            out = net(mixed.flatten(1))
            slope = torch.autograd.grad(out.sum(1), mixed, torch.ones(len(x)), create_graph=True)[0]
            penalty = (slope.norm(2, dim=1) - 1).square().mean()  # here
            opt.zero_grad()
            (F.cross_entropy(out, y) + penalty).backward()
            opt.step()
    Good:
        for x, y in loader:
            mixed = x.reshape(-1, 2, 2).requires_grad_()
            out = net(mixed.flatten(1))
            slope = torch.autograd.grad(out.sum(1), mixed, torch.ones(len(x)), create_graph=True)[0]
            penalty = (slope.flatten(1).norm(2, dim=1) - 1).square().mean()
            opt.zero_grad()
            (F.cross_entropy(out, y) + penalty).backward()
            opt.step()
    Fix: flatten the gradient to one row for each example first, as by `flatten(1)`.
    Evidence: new, and so preview; what it was tried on stands in benchmarks/doctor/experiments.json.
    """

    code = "REL026"
    follows = "operands"

    def try_out(self, experiment: StepExperiment) -> Iterator[BrokenRelation]:
        """Ask a child how many norms and outputs there are."""
        found = self.found(experiment, "num_gradients", "the step takes no gradient for its loss")
        for line, (norms, outputs) in found["of_parts"].items():
            message = (
                f"{norms} norms of a gradient are compared with a number here, and it is the gradient of {outputs} outputs: each "
                "norm is that of a part of an example. Flatten the gradient to one row for each example before the norm"
            )
            yield self.at(line, message, RISK, {"found": norms, "expected": outputs})
