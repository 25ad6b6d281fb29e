# SPDX-License-Identifier: Apache-2.0
"""Figures of an evaluation that are no mean over its examples."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from truestep.doctor.check import BUG
from truestep.doctor.watcher import Observation, Observations, Watcher

if TYPE_CHECKING:
    from torch import Tensor

    from truestep.doctor.finding import Place
    from truestep.doctor.runtime.history import LossCall, WatchHistory
    from truestep.doctor.runtime.origins import WatchedOrigin

LEAST = 2  # batches, and figures
MOST = 20_000  # batches
APART = 4  # times the rounding of a figure: so far a right value must be from it


class FigureOfWrongMean(Watcher):
    """A figure that is printed after an evaluation is that of its last batch, or was divided by the wrong number.

    Why: it hangs on the size of the batches and not on the model alone: it can't be compared with the loss of the
    training, nor with anybody else's.

    Bad:
        for epoch in range(2):
            for x, y in loader:
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()
                opt.step()
            total = 0.0
            with torch.no_grad():
                for x, y in test_loader:
                    total += F.cross_entropy(net(x), y).item()
            print(f"test loss {total / len(test_loader.dataset):.5f}")  # here

    Good:
        for epoch in range(2):
            for x, y in loader:
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()
                opt.step()
            total = 0.0
            with torch.no_grad():
                for x, y in test_loader:
                    total += len(x) * F.cross_entropy(net(x), y).item()
            print(f"test loss {total / len(test_loader.dataset):.5f}")

    Fix: add up len(x) * loss, or the number of right ones, over all batches; divide by the number of examples.
    """

    code = "EVAL048"

    def __init__(self) -> None:
        self.series: dict[Place, _BatchFigures] = {}  # of the evaluation that goes on, or was the last
        self.shown: list[tuple[Place, str, float]] = []  # what was printed since its last batch, and is wrong
        self.printed_at: set[Place] = set()  # since its last batch
        self.within: set[Place] = (
            set()
        )  # where figures are printed while an evaluation goes on: of one batch each
        self.known: dict[tuple[Place, str], set[float]] = {}
        self.is_over = False  # a new pass has begun, or a backward has run

    def on_loss(self, history: WatchHistory, loss: LossCall) -> None:
        """Note the mean loss of a batch."""
        if loss.options.get("reduction", "mean") == "mean" and not loss.value.dim() and loss.target.dim():
            self._note(loss.place, loss.value.detach(), len(loss.target), is_share=False)

    def on_operation(
        self, history: WatchHistory, origin: WatchedOrigin, given: list[Tensor], result: Any
    ) -> None:
        """Note how many predictions of a batch are right."""
        if origin.operation == "eq" and len(given) == 2 and given[0].shape == given[1].shape:
            if result.dim() == 1 and len(result) > 1:
                self._note(origin.place, result.float().mean(), len(result), is_share=True)

    def _note(self, place: Place, value: Tensor, count: int, *, is_share: bool) -> None:
        if self.is_over:
            self.series.clear()
            self.printed_at.clear()
            self.is_over = False
        if place in self.series:  # it goes on: what was printed was of one batch among others
            self.within |= self.printed_at
            self.shown.clear()
        made = self.series.setdefault(place, _BatchFigures(is_share))
        if len(made.values) < MOST:
            made.values.append(value)
            made.counts.append(count)

    def on_printed(self, history: WatchHistory, figures: list[tuple[float, float]], place: Place) -> None:
        """Compare what is printed with what the batches give."""
        if self.series and not self.is_over:
            self.printed_at.add(place)
        for made in self.series.values():
            for value, rounding in figures:
                if (kind := made.wrong_mean(value, rounding)) is not None:
                    if not any(each.is_right(value, rounding) for each in self.series.values()):
                        self.shown.append((place, kind, value))

    def on_epoch(self, history: WatchHistory, source: object, place: Place) -> Observations:
        """The evaluation is over."""
        yield from self._close()

    def on_mode(self, history: WatchHistory, module: object, training: bool, place: Place) -> Observations:
        """The evaluation is over, or about to begin."""
        yield from self._close()

    def on_backward(self, history: WatchHistory, tensors: object, place: Place) -> Observations:
        """What was computed before is training, or an evaluation that is over."""
        yield from self._close()
        self.series.clear()

    def on_finish(self, history: WatchHistory) -> Observations:
        """The last evaluation is over."""
        yield from self._close()

    def _close(self) -> Observations:
        self.is_over = True
        shown, self.shown = self.shown, []
        for place, kind, value in (each for each in shown if each[0] not in self.within):
            values = self.known.setdefault((place, kind), set())
            values.add(value)
            if len(values) == LEAST:
                text = f"The figures that are printed here are {kind}: {', '.join(f'{each:g}' for each in values)}."
                yield Observation(place, text, BUG, {"figures": sorted(values)})


@dataclass(eq=False)
class _BatchFigures:
    """The figures of the batches of one evaluation, each a mean over its batch."""

    is_share: bool
    values: list[Tensor] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)

    def is_right(self, value: float, rounding: float) -> bool:
        """Tell a mean over all examples, or over batches."""
        return any(abs(value - each) <= APART * rounding for each in self._right_ones())

    def wrong_mean(self, value: float, rounding: float) -> str | None:
        """Return what else a figure is, to all of its digits."""
        if len(self.values) < LEAST:
            return None
        values = [float(each) for each in self.values]
        total, rows = sum(values), sum(self.counts)
        summed = sum(each * count for each, count in zip(values, self.counts, strict=True))
        kinds = [
            ("the sum of the batches' means, divided by the number of examples", total / rows),
            ("those of the last batch alone", values[-1]),
        ]
        if not self.is_share:  # how many are right in a batch is a figure too
            kinds += [("the sum over all examples, divided by the number of batches", summed / len(values))]
        for kind, one in kinds:
            for scaled in (one, 100 * one) if self.is_share else (one,):
                if abs(value - scaled) <= rounding and not self.is_right(value, rounding):
                    return kind
        return None

    def _right_ones(self) -> list[float]:
        values = [float(each) for each in self.values]
        if not values:
            return []
        summed = sum(each * count for each, count in zip(values, self.counts, strict=True))
        means = [summed / sum(self.counts), sum(values) / len(values)]
        return [*means, *(100 * each for each in means)] if self.is_share else means
