# SPDX-License-Identifier: Apache-2.0
"""Batches that come again in their order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from truestep.doctor.check import ADVICE, RISK
from truestep.doctor.finding import Place
from truestep.doctor.library.losses import losses
from truestep.doctor.runtime.history import ForwardCall, LossCall
from truestep.doctor.runtime.looking import watched_on_host
from truestep.doctor.watcher import Observation, Observations, Watcher

if TYPE_CHECKING:
    from torch import Tensor

    from truestep.doctor.runtime.history import WatchHistory

LEAST = 4  # examples in a batch
MOST = 8  # examples of a batch by which it is known
_CLASSES = losses(target="classes shares")
Print = tuple[object, ...]


class SameOrderEveryEpoch(Watcher):
    """Two epochs of training give the same batches in the same order.

    Why: the same examples always meet in one batch, and the last ones always weigh most: where the data are sorted, the
    model follows the order; in any case the gradients' noise repeats.

    Bad:
        data = TensorDataset(torch.randn(24, 4), torch.arange(24) % 3)
        batches = [(data[i : i + 8][0], data[i : i + 8][1]) for i in range(0, 24, 8)]
        for _ in range(3):
            for x, y in batches:
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()  # here
                opt.step()

    Good:
        for _ in range(3):
            for x, y in loader:
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()
                opt.step()

    Fix: DataLoader(..., shuffle=True), or a new random order in each epoch.
    """

    code = "DATA035"

    def __init__(self) -> None:
        self.current: tuple[Print, Place] | None = None  # of the forward that is trained on
        self.severity = ADVICE  # sequences and series may have an order of their own
        self.seen: list[Print] = []  # in the first steps, one after another
        self.started: dict[int, Print] = {}  # the first batch of each source's first pass
        self.source: int | None = None  # that has just begun a pass
        self.is_done = False

    def on_epoch(self, history: WatchHistory, source: object, place: Place) -> None:
        """A pass begins."""
        self.source = id(source)
        self.is_done = self.is_done or hasattr(source, "set_epoch")  # a DistributedSampler's is DIST001

    def on_forward(self, history: WatchHistory, forward: ForwardCall) -> None:
        """Remember a batch that goes through a model in training, if it is its only tensor: others carry states."""
        if self.is_done or not (forward.module.training and forward.gradients_on) or self.current is not None:
            return
        given = forward.numbers
        if given is not None and len(forward.args) == 1 and not forward.kwargs and _can_be_told(given):
            self.current = _print_of(given), forward.place

    def on_loss(self, history: WatchHistory, loss: LossCall) -> None:
        """One class for each example tells of a task in which the order means nothing."""
        if loss.name in _CLASSES and loss.target.dim() == 1:
            self.severity = RISK

    def on_backward(self, history: WatchHistory, tensors: object, place: Place) -> Observations:
        """Compare with what came before."""
        current, self.current = self.current, None
        source, self.source = self.source, None
        if current is None or self.is_done:
            return
        batch, at = current
        if history.in_window:
            self.seen.append(batch)
            if (period := _period(self.seen)) is not None:
                yield self._saw(at, f"The {period} batches of an epoch came again in the same order.")
        if source is not None and not self.is_done:
            first = self.started.get(source)
            self.started.setdefault(source, batch)
            if first == batch and len(set(self.seen)) > 1:
                yield self._saw(at, "The second epoch began with the same batch as the first.")

    def _saw(self, place: Place, text: str) -> Observation:
        self.is_done = True
        return Observation(place, text, self.severity)


def _can_be_told(given: Tensor) -> bool:
    return watched_on_host(given) and not given.is_complex() and given.dim() > 0 and len(given) >= LEAST


def _print_of(given: Tensor) -> Print:
    """Return what tells a batch from others: its shape and its first examples, most of whose numbers may be 0."""
    from truestep.doctor.runtime.prints import prints_of_rows, sampled_rows

    return (tuple(given.shape), *prints_of_rows(sampled_rows(given[:MOST])).tolist())


def _period(seen: list[Print]) -> int | None:
    """Return after how many different batches they all came a second time; a single one is no epoch."""
    half = len(seen) // 2
    again = len(seen) == 2 * half and half > 1 and seen[:half] == seen[half:]
    return half if again and len(set(seen[:half])) == half else None
