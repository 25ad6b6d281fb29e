# SPDX-License-Identifier: Apache-2.0
"""A last accumulation window of fewer batches, divided as a full one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from truestep.doctor.check import RISK
from truestep.doctor.finding import Place
from truestep.doctor.watcher_base import Observation, Observations, Watcher

if TYPE_CHECKING:
    from torch import Tensor

    from truestep.doctor.runtime.history import OptimizerRecord, WatchHistory


class ShortWindowCountsLess(Watcher):
    """An epoch's last accumulation window has fewer batches, and their losses are divided by a full window's number.

    Why: that step's gradient is too small by it: its samples count less than all others, in every epoch.

    Bad:
        for _ in range(2):
            for i, (x, y) in enumerate(loader):
                (F.cross_entropy(net(x), y) / 3).backward()
                if (i + 1) % 3 == 0 or i + 1 == len(loader):
                    opt.step()  # here
                    opt.zero_grad()

    Good:
        for _ in range(2):
            for i, (x, y) in enumerate(loader):
                window = min(3, len(loader) - i // 3 * 3)
                (F.cross_entropy(net(x), y) / window).backward()
                if (i + 1) % 3 == 0 or i + 1 == len(loader):
                    opt.step()
                    opt.zero_grad()

    Fix: divide by the batches in the window: min(k, len(loader) - i // k * k). Where a library divides (Lightning, Accelerate),
    choose a number that divides the batches, or shorten the epoch to whole windows (Trainer(limit_train_batches=...)). The parts of
    one `net.update(loss, batch, micro_batch=...)` are weighted exactly.

    Evidence: the libraries themselves: Lightning 2.6.6 with 16 batches by 3, Accelerate 1.15.0 with 18 by 4.
    """

    code = "GRAD066"

    def __init__(self) -> None:
        self._divisors: list[float | None] = []  # of the backwards since the last step
        self._was_full = False  # the last window was of as many backwards as its losses were divided by
        self._num_clips = 0  # since the last step
        self._is_changed = False
        # that optimizer, its number of steps, and the stretch looked at
        self._last: tuple[int, int, int] | None = None

    def on_backward(self, history: WatchHistory, tensors: tuple[Tensor, ...], place: Place) -> None:
        """Note by what a loss was divided last."""
        alone = len(tensors) == 1 and not history.is_seeded
        self._divisors.append(_last_loss_divisor(tensors[0]) if alone else None)

    def on_clear(self, history: WatchHistory, records: list[OptimizerRecord], place: Place) -> None:
        """What is cleared is in no window."""
        self._divisors = []

    def on_clip(self, history: WatchHistory, parameters: list[Tensor], place: Place) -> None:
        """A clip changes gradients once."""
        self._num_clips += 1

    def on_step(self, history: WatchHistory, record: OptimizerRecord, place: Place) -> None:
        """Note whether the script scales gradients itself; with a closure their backward is still to come."""
        self._is_changed = not record.has_closure and record.changes_gradients(self._num_clips)

    def on_stepped(self, history: WatchHistory, record: OptimizerRecord, place: Place) -> Observations:
        """Report a step on fewer backwards than each was divided by, right behind steps on as many."""
        divisors, self._divisors, self._num_clips = self._divisors, [], 0
        before, self._last = self._last, (id(record), record.num_steps, history.num_looks)
        # else steps or backwards between were not looked at, or are another optimizer's
        follows_full = self._was_full and before == (id(record), record.num_steps - 1, history.num_looks)
        parts = divisors[0] if len(set(divisors)) == 1 else None
        self._was_full = parts is not None and len(divisors) == parts >= 2 and not self._is_changed
        if follows_full and parts is not None and len(divisors) < parts and not self._is_changed:
            yield Observation(
                place, _short_window_message(len(divisors), int(parts)), RISK, {"backwards": len(divisors)}
            )


def _short_window_message(number: int, parts: int) -> str:
    batches = "1 batch" if number == 1 else f"{number} batches"
    return (
        f"This step's gradient is of {batches}, and each loss was divided by {parts}, as in the steps before, which had {parts} "
        f"batches: it is {number}/{parts} of what a mean over its samples would be."
    )


def _last_loss_divisor(loss: Tensor) -> float | None:
    """Return the whole number that a loss was divided by last, or multiplied with the inverse of; None where it was by none."""
    made = loss.grad_fn
    name = made.name() if made is not None else ""
    other = getattr(made, "_saved_other", None) if name in ("DivBackward0", "MulBackward0") else None
    if other is None or other.requires_grad or other.numel() != 1:
        return None
    value = float(other)
    number = value if name == "DivBackward0" else 1 / value if value else 0.0
    whole = round(number) if math.isfinite(number) else 0
    return float(whole) if abs(number - whole) < 1e-6 * max(1, whole) else None
