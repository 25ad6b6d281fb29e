# SPDX-License-Identifier: Apache-2.0
"""Check REL015."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from truestep.doctor.check import QUESTION
from truestep.doctor.relations.relation import BrokenRelation, EvaluationRelation

if TYPE_CHECKING:
    from truestep.doctor.experiments.evaluation_experiment import EvaluationExperiment


class FiguresWithoutAnItem(EvaluationRelation):
    """An item of an evaluation's batches is used, and no figure changes when all examples have one value of it.

    Why: a figure that is the same for any labels says nothing of how well the model finds them; predictions may be
    compared with themselves, or with the labels of another batch.

    Bad:
        def evaluate():
            net.eval()
            total = 0.0
            with torch.no_grad():
                for x, y in test_loader:  # here
                    output = net(x)
                    hits = output.argmax(1) == y
                    total += F.cross_entropy(output, output.argmax(1), reduction="sum").item()
            print(f"test loss {total / len(test_loader.dataset):.4f}")
            net.train()
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()
        evaluate()
    Good:
        def evaluate():
            net.eval()
            total, hits = 0.0, 0
            with torch.no_grad():
                for x, y in test_loader:
                    output = net(x)
                    hits += int((output.argmax(1) == y).sum())
                    total += F.cross_entropy(output, y, reduction="sum").item()
            print(f"test loss {total / len(test_loader.dataset):.4f}, {hits} hits")
            net.train()
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()
        evaluate()
    Fix: compute the figure from the item, or take what is computed with it out of the evaluation.
    Evidence: new, and so preview; what it was tried on stands in benchmarks/doctor/experiments.json.
    """

    code = "REL015"
    num_children = 7

    def try_out(self, experiment: "EvaluationExperiment") -> Iterator[BrokenRelation]:
        """Compare what is printed with one value of each item for all examples."""
        for item in experiment.items_used():
            if experiment.item_moves_what_is_printed(item):
                continue
            message = (
                f"item {item} of the evaluation's batches is used, and with one value of it for all examples the evaluation prints "
                "the same. Is what is computed with it kept elsewhere?"
            )
            yield BrokenRelation(message, QUESTION, evidence={"item": item})
