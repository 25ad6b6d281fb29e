# SPDX-License-Identifier: Apache-2.0
"""Check REL024."""

from collections.abc import Iterator

from truestep.doctor.check import QUESTION
from truestep.doctor.relations.relation import BrokenRelation, FollowedRelation, StepExperiment


class ViewWrittenOver(FollowedRelation):
    """Two parts of a tensor overlap, one is written over in place, and the other is read afterwards with what was written.

    Why: `tokens[:, :-1]` and `tokens[:, 1:]` are one memory: to mask the labels in the second masks the inputs in the first.

    Bad:
        for x, y in loader:
            before, after = x[:, :-1], x[:, 1:]
            after.masked_fill_(after < 0, 0.0)  # here
            opt.zero_grad()
            loss = (net(F.pad(before, (0, 1))).amax(1) - after.sum(1)).square().mean()
            loss.backward()
            opt.step()
    Good:
        for x, y in loader:
            before, after = x[:, :-1], x[:, 1:].clone()
            after.masked_fill_(after < 0, 0.0)
            opt.zero_grad()
            loss = (net(F.pad(before, (0, 1))).amax(1) - after.sum(1)).square().mean()
            loss.backward()
            opt.step()
    Fix: clone the part that is written to, or write to a new tensor, as `masked_fill` without an underscore does.
    Evidence: new, and so preview; what it was tried on stands in benchmarks/doctor/experiments.json.
    """

    code = "REL024"
    follows = "views"
    num_children = 2

    def try_out(self, experiment: StepExperiment) -> Iterator[BrokenRelation]:
        """Ask a child for such lines, and others that write to memory of their own there."""
        assert experiment.tolerance
        found = self.found(experiment, "num_written", "the step writes over no tensor in place")
        for line in found["overwritten"][:2]:
            if self.makes_a_difference(experiment, apart=line):
                message = (
                    "this writes to a part of a tensor in place, and another part that overlaps it is read afterwards with "
                    "what was written: with memory of its own the step is another one. Is a running result meant, or should it "
                    "write to a copy?"
                )
                yield self.at(line, message, QUESTION)
