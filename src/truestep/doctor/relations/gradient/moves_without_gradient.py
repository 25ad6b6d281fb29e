# SPDX-License-Identifier: Apache-2.0
"""Check REL017."""

from collections.abc import Iterator

from truestep.doctor.check import QUESTION
from truestep.doctor.relations.relation import BrokenRelation, StepExperiment, StepRelation


class MovesWithoutGradient(StepRelation):
    """A layer that the optimizer holds changes the loss, and no gradient reaches it.

    Why: it stays what it was when it was made, and all others are trained to go along with that.

    Bad:
        value = nn.Linear(4, 1)
        opt = torch.optim.SGD([*net.parameters(), *value.parameters()], lr=0.1)
        for x, y in loader:  # here
            gains = F.one_hot(y, 3).float().amax(1) - value(x).squeeze(1).detach()
            opt.zero_grad()
            (F.cross_entropy(net(x), y, reduction="none") * gains).mean().backward()
            opt.step()
    Good:
        value = nn.Linear(4, 1)
        opt = torch.optim.SGD([*net.parameters(), *value.parameters()], lr=0.1)
        for x, y in loader:
            guess = value(x).squeeze(1)
            gains = F.one_hot(y, 3).float().amax(1) - guess.detach()
            opt.zero_grad()
            loss = (F.cross_entropy(net(x), y, reduction="none") * gains).mean()
            (loss + (guess - 1).square().mean()).backward()
            opt.step()
    Fix: add a loss of its own for it, or leave it out of the optimizer if it is to stay as it is.
    Evidence: new, and so preview; what it was tried on stands in benchmarks/doctor/experiments.json.
    """

    code = "REL017"
    needs_batch = False
    num_children = 3

    def try_out(self, experiment: StepExperiment) -> Iterator[BrokenRelation]:
        """Move layers without a gradient, and look at the loss."""
        from truestep.doctor.experiments.gradientless_layers import (
            has_step_without_gradients,
            loss_changes_without_gradient,
        )

        assert experiment.tolerance
        if not has_step_without_gradients(experiment):
            experiment.demand_effect()
        for layer, moved in loss_changes_without_gradient(experiment):
            message = (
                f"{layer} is held by an optimizer and has no gradient in its step, though the loss changes by {moved:.2%} where "
                "its weights change by 1%: it is never trained. Is it meant to stay as it was made?"
            )
            yield BrokenRelation(
                message, QUESTION, evidence={"layer": layer, "found": moved, "expected": 0.0}
            )
            return  # all others are held by the same optimizer
