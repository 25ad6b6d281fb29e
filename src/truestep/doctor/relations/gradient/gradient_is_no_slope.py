# SPDX-License-Identifier: Apache-2.0
"""Check REL011."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from truestep.doctor.check import RISK
from truestep.doctor.relations.relation import BrokenRelation, StepExperiment, StepRelation

if TYPE_CHECKING:
    from truestep.doctor.experiments.parameter_perturbation import BlockMove


class GradientIsNoSlope(StepRelation):
    """Parameters that are moved a little change the loss by something else than their gradient says.

    Why: a part of the loss is cut off from the graph (numbers read by .data or .item(), a gradient taken without
    create_graph, a new tensor of old numbers), so that it is not trained.

    Bad:
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for x, y in loader:
            opt.zero_grad()
            decay = sum(each.data.square().sum() for each in net.parameters())  # here
            (F.cross_entropy(net(x), y) + 0.1 * decay).backward()
            opt.step()
    Good:
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for x, y in loader:
            opt.zero_grad()
            decay = sum(each.square().sum() for each in net.parameters())
            (F.cross_entropy(net(x), y) + 0.1 * decay).backward()
            opt.step()
    Fix: leave out what cuts the graph on the way to the loss; where the cut is meant, write detach() there.
    Evidence: new, and so preview; what it was tried on stands in benchmarks/doctor/experiments.json.
    """

    code = "REL011"
    needs_batch = False
    num_children = 7  # and five for each further block, where a cut in writing is in the way

    def try_out(self, experiment: StepExperiment) -> Iterator[BrokenRelation]:
        """Compare the slope of the loss with the gradient, block by block."""
        from truestep.doctor.experiments.slopes import (
            demand_comparable_slopes,
            in_full_precision,
            moves_with_wrong_slope,
        )

        experiment = in_full_precision(experiment)
        demand_comparable_slopes(experiment)
        for move, measured in moves_with_wrong_slope(experiment):
            yield self._broken_slope(experiment, move, measured)
            return  # one cut shows in several blocks

    def _broken_slope(self, experiment: StepExperiment, move: "BlockMove", measured: float) -> BrokenRelation:
        from truestep.doctor.experiments.slopes import graph_cuts

        cuts = graph_cuts(experiment)
        message = (
            f"the loss changes by {measured:.3g} for a small step of {move.name}, and its gradient says {move.said:.3g}: "
            "a part of the loss is cut off from the graph"
        )
        message += f", by {' and '.join(each.told for each in cuts)}" if cuts else ""
        evidence = {"found": move.said, "expected": measured, "block": move.name}
        return BrokenRelation(message, RISK, cuts[0].place if cuts else None, evidence)
