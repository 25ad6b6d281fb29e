# SPDX-License-Identifier: Apache-2.0
"""Where a run is, and the words for it."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from truestep.core.text_formatting import duration_text, number_text, short_number

# the report draws these; in a line they would crowd out what one watches
NOT_SHOWN = ("learning_rate", "gradient_norm", "memory_bytes")

Tone = Literal["plain", "quiet", "warning", "bad"]


@dataclass(kw_only=True, slots=True)
class ProgressReading:
    """Where the run is, and the newest values."""

    total_epochs: int | None
    batches_per_epoch: int | None = None
    step: int = 0
    epoch: int = 0
    batch: int = 0
    values: dict[str, float] = field(default_factory=dict)
    elapsed_seconds: float = 0.0
    seconds_per_step: float | None = None  # at this process's mean pace, evaluations and saves included

    @property
    def has_steps_only(self) -> bool:
        """Whether the run is one pass of so many steps: it has 0 epochs."""
        return self.total_epochs == 0

    @property
    def fraction(self) -> float | None:
        """How much of all epochs is done, where that is known."""
        if not self.batches_per_epoch or self.total_epochs is None:
            return None
        done = self.batch + (0 if self.has_steps_only else self.epoch * self.batches_per_epoch)
        return min(1.0, done / (max(1, self.total_epochs) * self.batches_per_epoch))

    @property
    def seconds_left(self) -> float | None:
        """Until all epochs are done, where that can be told."""
        if self.fraction is None or self.seconds_per_step is None:
            return None
        total = max(1, self.total_epochs or 0) * (self.batches_per_epoch or 0)
        return (1 - self.fraction) * total * self.seconds_per_step

    def epoch_text(self) -> str:
        """As in "epoch 3/20", or "17/400 steps" of a run without epochs."""
        if self.has_steps_only:
            return f"{self.batch:,}/{self.batches_per_epoch or 0:,} steps"
        return f"epoch {self.epoch + 1}" + (f"/{self.total_epochs}" if self.total_epochs else "")

    def time_text(self) -> str:
        """The time left; the time since the start at the end, or where that is all one knows."""
        if self.fraction == 1:
            return f"took {duration_text(self.elapsed_seconds)}"
        left = self.seconds_left
        return (
            f"{duration_text(self.elapsed_seconds)} so far" if left is None else f"{duration_text(left)} left"
        )

    def facts(self) -> Iterator[tuple[str, Tone]]:
        """What stands beside the bar, most watched first."""
        yield f"step {self.step:,}", "quiet"
        yield from self._losses_then_others()
        rate = self.values.get("samples_per_second")
        if rate is not None:
            yield f"{short_number(rate)} samples/s", "quiet"
        elif self.seconds_per_step:
            yield f"{short_number(1 / self.seconds_per_step)} steps/s", "quiet"

    def _losses_then_others(self) -> Iterator[tuple[str, Tone]]:
        def loss_first_key(name: str) -> int:
            return 0 if name.endswith("loss") else 1

        for name in sorted(self.values, key=loss_first_key):
            value, last = self.values[name], name.rpartition("/")[2]
            if last == "updates_skipped":
                if value:
                    yield f"{name.replace('/', ' ').replace('updates_', '')} {value:,.0f}", "warning"
            elif last == "save_stall_seconds":
                if value >= 0.05:
                    yield f"saves {value:.1f} s", "warning"
            elif last not in (*NOT_SHOWN, "samples_per_second"):
                tone: Tone = "plain" if math.isfinite(value) else "bad"
                yield f"{name.replace('/', ' ')} {number_text(value)}", tone

    def plain(self) -> str:
        """All of it in one line of text."""
        return "  ".join([self.epoch_text(), *(text for text, _ in self.facts()), self.time_text()])
