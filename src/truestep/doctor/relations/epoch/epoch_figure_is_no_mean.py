# SPDX-License-Identifier: Apache-2.0
"""Check REL014."""

from collections.abc import Iterator

from truestep.doctor.check import RISK
from truestep.doctor.relations.relation import BrokenRelation, EpochExperiment, EpochRelation


class EpochFigureIsNoMean(EpochRelation):
    """What is printed behind an epoch, or within it, is the batches' values added up and divided by a count of something else.

    Why: means of batches that are divided by the number of examples, or sums over examples that are divided by the number
    of batches, are off by the batch size; a figure that is called a mean and is the last batch's is noise. A loss that was
    divided for an accumulation is logged too small by that number.

    Bad:
        for epoch in range(2):
            total = 0.0
            for x, y in loader:  # here
                opt.zero_grad()
                loss = F.cross_entropy(net(x), y)
                loss.backward()
                opt.step()
                total += loss.item()
            print(f"epoch {epoch} loss {total / len(data):.5f}")
    Good:
        for epoch in range(2):
            total = 0.0
            for x, y in loader:
                opt.zero_grad()
                loss = F.cross_entropy(net(x), y)
                loss.backward()
                opt.step()
                total += loss.item()
            print(f"epoch {epoch} loss {total / len(loader):.5f}")
    Fix: divide means of batches by the number of batches, or add up loss.item() * len(x) and divide by the number of examples;
        log the loss before it is divided for an accumulation.
    Evidence: new, and so preview; what it was tried on stands in benchmarks/doctor/experiments.json.
    """

    code = "REL014"

    def try_out(self, experiment: EpochExperiment) -> Iterator[BrokenRelation]:
        """Compare what a child prints behind an epoch of a few batches with the values of these."""
        for told in experiment.wrong_figures():
            where = (
                "within an epoch"
                if told.is_within
                else f"behind an epoch of {experiment.num_batches} batches"
            )
            message = (
                f"{where} {told.figure.text} is printed (behind {told.figure.before!r}): "
                f"{told.formula} of the values at {told.source}, whose mean is {told.mean:.4g}"
            )
            evidence = {"found": told.figure.value, "expected": told.mean}
            yield BrokenRelation(message, RISK, evidence=evidence)
            return  # one count is wrong for all that is added up
