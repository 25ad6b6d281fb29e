# SPDX-License-Identifier: Apache-2.0
"""Inputs of an evaluation on another scale than those of the training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from truestep.doctor.check import RISK
from truestep.doctor.watcher import Observation, Observations, Watcher

if TYPE_CHECKING:
    from collections.abc import Sequence

    from truestep.doctor.finding import Place
    from truestep.doctor.runtime.history import WatchHistory
    from truestep.doctor.runtime.row_batches import RowBatch

LEAST = 16  # examples on either side
NUMBERS = 4  # of an example: one or two may be a place or a time, which an evaluation goes beyond
FAR = 20.0  # times another deviation
APART = 2.0  # times another one, where one side has been normalised
STEADY = 1.5  # the deviations of one side's batches lie within so many times of the whole


class EvaluationScaledDifferently(Watcher):
    """The inputs of the evaluation have another mean or deviation than those of the training.

    Why: they are normalised on one side only (or by other numbers), so the model sees inputs that it has never seen the
    like of: the figures are far too low.

    Bad:
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()
        net.eval()
        with torch.no_grad():
            right = sum((net(50 + 9 * x).argmax(1) == y).sum().item() for x, y in test_loader)  # here

    Good:
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()
        net.eval()
        with torch.no_grad():
            right = sum((net(x).argmax(1) == y).sum().item() for x, y in test_loader)

    Fix: give both the same transform: the mean and deviation of the training set.

    Evidence: the plain form of row 78 of docs/mistakes.md.
    """

    code = "EVAL045"

    def on_finish(self, history: WatchHistory) -> Observations:
        """Compare the scales; where any evaluation has that of the training, the others differ on purpose."""
        found: list[tuple[Place, _Scale, _Scale]] = []
        for (model, place), passes in history.rows.evaluated.items():
            for each in passes:
                training = [one for one in history.rows.trained.batches if one.model == model]
                evaluation = [one for one in each.batches if one.is_measured]
                trained, evaluated = _Scale.of(training), _Scale.of(evaluation)
                if trained is not None and evaluated is not None and trained.width == evaluated.width:
                    found.append((place, trained, evaluated))
        if found and all(one.is_far_from(other) for _, one, other in found):
            place, trained, evaluated = found[0]
            yield Observation(
                place,
                f"The inputs have mean {evaluated.mean:.3g} and deviation {evaluated.deviation:.3g} here, and "
                f"{trained.mean:.3g} and {trained.deviation:.3g} in training.",
                RISK,
                {"evaluation": evaluated.told(), "training": trained.told()},
            )


@dataclass(frozen=True)
class _Scale:
    """Mean and deviation of all the numbers of some batches."""

    mean: float
    deviation: float
    width: int

    @classmethod
    def of(cls, batches: Sequence[RowBatch]) -> _Scale | None:
        """Return the scale of batches that agree on theirs; None where they don't, or hold too little."""
        measured = [each.measures.tolist() for each in batches if each.measures is not None]
        widths = {each.width for each in batches}
        enough = sum(len(each.inputs) for each in batches) >= LEAST
        if (
            not measured
            or len(measured) < len(batches)
            or len(widths) > 1
            or min(widths) < NUMBERS
            or not enough
        ):
            return None
        mean = sum(each[0] for each in measured) / len(measured)
        spread = sum((each[0] - mean) ** 2 + each[1] ** 2 for each in measured) / len(measured)
        deviation = spread**0.5
        steady = all(deviation / STEADY <= each[1] <= deviation * STEADY for each in measured)
        return cls(mean, deviation, widths.pop()) if steady and deviation > 0 else None

    @property
    def is_normal(self) -> bool:
        """Whether mean and deviation are about 0 and 1, as after a normalisation."""
        return abs(self.mean) < 0.2 and 0.8 < self.deviation < 1.25

    def is_far_from(self, other: _Scale) -> bool:
        """Tell whether the other can't be of the same kind of data."""
        times = max(self.deviation, other.deviation) / min(self.deviation, other.deviation)
        if times >= FAR or self._is_halved(other) or other._is_halved(self):
            return True
        apart = abs(self.mean - other.mean) > APART * min(self.deviation, other.deviation)
        return self.is_normal is not other.is_normal and (times >= APART or apart)

    def _is_halved(self, other: _Scale) -> bool:
        """Tell numbers from 0 to 1 of one side from the same ones brought to -1 to 1 on the other."""
        brought = 2 * other.mean - 1, 2 * other.deviation
        near = abs(self.mean - brought[0]) + abs(self.deviation - brought[1]) < 0.1 * self.deviation
        return near and 0 < other.mean < 1 and other.deviation <= 0.5

    def told(self) -> str:
        """Return it as evidence."""
        return f"mean {self.mean:.4g}, deviation {self.deviation:.4g}"
