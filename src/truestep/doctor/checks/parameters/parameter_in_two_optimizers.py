# SPDX-License-Identifier: Apache-2.0
"""A parameter that is stepped twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from truestep.core.tensor_bytes import tensor_version
from truestep.doctor.check import RISK
from truestep.doctor.finding import Place
from truestep.doctor.watcher_base import Observation, Observations, Watcher

if TYPE_CHECKING:
    from torch import Tensor

    from truestep.doctor.runtime.history import OptimizerRecord, WatchHistory


FEW = 4  # of the shared parameters
MOST_NUMBERS = 1000  # of each of them


class TensorSnapshot(NamedTuple):
    """A tensor as it was before a step."""

    tensor: Tensor
    version: int
    numbers: Tensor

    @classmethod
    def of(cls, tensor: Tensor) -> TensorSnapshot:
        """Return what a tensor is now."""
        return cls(tensor, tensor_version(tensor), _leading_values(tensor).clone())

    def has_moved(self) -> bool:
        """Tell whether it was changed since, also by way of its `.data`, which counts no version."""
        return tensor_version(self.tensor) != self.version or not self.numbers.equal(
            _leading_values(self.tensor)
        )


def _leading_values(tensor: Tensor) -> Tensor:
    return tensor.detach().reshape(-1)[:MOST_NUMBERS]


class SharingOptimizers(NamedTuple):
    """Two optimizers that step the same tensors, from two lines."""

    first: OptimizerRecord
    second: OptimizerRecord
    shared: list[Tensor]

    def has(self, record: OptimizerRecord) -> bool:
        """Tell whether it is one of the two."""
        return record is self.first or record is self.second


class ParameterInTwoOptimizers(Watcher):
    """Two optimizers that both step hold the same parameters.

    Why: each loss moves them, with two states and two rates; in a GAN the generator's step then trains
    the discriminator to be fooled.

    Bad:
        head = nn.Linear(3, 2)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        opt_head = torch.optim.Adam([*head.parameters(), *net.parameters()])  # here
        for x, y in loader:
            opt.zero_grad()
            opt_head.zero_grad()
            F.cross_entropy(head(net(x)), y % 2).backward()
            opt.step()
            opt_head.step()

    Good:
        head = nn.Linear(3, 2)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        opt_head = torch.optim.Adam(head.parameters())
        for x, y in loader:
            opt.zero_grad()
            opt_head.zero_grad()
            F.cross_entropy(head(net(x)), y % 2).backward()
            opt.step()
            opt_head.step()

    Fix: give each optimizer its own model's parameters.

    Evidence: eriklindernoren/PyTorch-GAN 36d3c77e implementations/infogan/infogan.py:166.
    """

    code = "PARAM023"

    def __init__(self) -> None:
        self.at_work: list[OptimizerRecord] = []  # whose step is not over, the innermost last
        self.stepped_at: dict[int, Place] = {}
        self.pairs: list[SharingOptimizers] = []
        self.before: dict[int, list[TensorSnapshot]] = {}  # of what it shares, before its step
        self.moving: set[int] = set()  # optimizers whose steps changed what they share

    def on_step(self, history: WatchHistory, record: OptimizerRecord, place: Place) -> None:
        """Note whom it shares parameters with, and what these are before its step.

        One that steps from the same line as the other, or within the other's step, is a part of that: SAM, Lookahead
        and the like.
        """
        self.stepped_at[id(record)] = place
        if not record.num_steps and not self.at_work:
            mine = {id(each) for each in record.parameters() if each.requires_grad}
            for other in history.stepped_optimizers():
                shared = [each for each in other.parameters() if id(each) in mine]
                if other is not record and shared and self.stepped_at.get(id(other), place) != place:
                    self.pairs.append(SharingOptimizers(other, record, shared))
        self.at_work.append(record)
        held = [each for pair in self.pairs if pair.has(record) for each in pair.shared[:FEW]]
        self.before[id(record)] = [TensorSnapshot.of(each) for each in held]

    def on_stepped(self, history: WatchHistory, record: OptimizerRecord, place: Place) -> Observations:
        """Report shared parameters when the first of two optimizers steps again after the second.

        One that never steps again was replaced. One that reads no gradients, or moves nothing, keeps averages or
        figures by an optimizer's interface.
        """
        while self.at_work and self.at_work.pop() is not record:
            pass  # steps that ended in an exception
        if any(each.has_moved() for each in self.before.pop(id(record), ())):
            self.moving.add(id(record))
        waiting, self.pairs = self.pairs, []
        for pair in waiting:
            both = (pair.first, pair.second)
            known = all(each.reads_gradients and id(each) in self.moving for each in both)
            if not known or pair.first is not record:
                self.pairs.append(pair)
            else:
                names = [history.parameter_name(each) for each in pair.shared[:FEW]]
                text = f"{len(pair.shared)} parameters are held by two optimizers: {', '.join(names)}."
                saw = {"shared": names, "other_made_at": str(pair.first.place)}
                yield Observation(pair.second.place, text, RISK, saw)
