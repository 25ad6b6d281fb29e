# SPDX-License-Identifier: Apache-2.0
"""Check REL023."""

from collections.abc import Iterator

from truestep.doctor.check import QUESTION
from truestep.doctor.relations.relation import BrokenRelation, StepExperiment, StepRelation


class MapsNotInverse(StepRelation):
    """A data set's map of words to numbers, and its map of numbers to words, do not lead back to where one began.

    Why: a word that stands for two numbers is written as one and read as the other, as where a special token came in the
    text as well.

    Bad:
        class Words(torch.utils.data.TensorDataset):
            def __init__(self):
                self.names = ["<pad>", "<unk>", "a", "b", "<unk>", "c"]
                self.numbers = {name: number for number, name in enumerate(self.names)}
                super().__init__(torch.randn(32, 4), torch.arange(32) % 3)
        for x, y in DataLoader(Words(), batch_size=8, shuffle=True):  # here
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()
    Good:
        class Words(torch.utils.data.TensorDataset):
            def __init__(self):
                self.names = ["<pad>", "<unk>", "a", "b", "c"]
                self.numbers = {name: number for number, name in enumerate(self.names)}
                super().__init__(torch.randn(32, 4), torch.arange(32) % 3)
        for x, y in DataLoader(Words(), batch_size=8, shuffle=True):
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()
    Fix: give each word one number, and build one map of the other.
    Evidence: new, and so preview; what it was tried on stands in benchmarks/doctor/experiments.json.
    """

    code = "REL023"
    num_children = 0

    def try_out(self, experiment: StepExperiment) -> Iterator[BrokenRelation]:
        """Go through both maps."""
        from truestep.doctor.experiments.data_set_contents import find_non_inverse_maps

        for found in find_non_inverse_maps(getattr(experiment.plan.iterator, "_dataset", None)):
            message = (
                f"{found.one!r} of the data set gives {found.value!r} for {found.key!r}, and {found.other!r} leads from there "
                f"back to {found.back!r}. Do both stand for the same, or was one written over?"
            )
            yield BrokenRelation(message, QUESTION, evidence={"name": found.one})
