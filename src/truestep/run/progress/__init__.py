# SPDX-License-Identifier: Apache-2.0
"""What one sees while a run goes on: a bar on a terminal, a notebook cell's output, or lines now and then."""

import math
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TextIO

from truestep.run.progress.reading import ProgressReading
from truestep.run.progress.screens import SilentProgress, progress_display_for

# at most a hundredth of the time goes into showing, however slow the terminal or the reading of the loss
SHARE_OF_TIME = 0.01


class Progress:
    """Shows how far a run is on `stream`; None shows nothing, as on every rank but the first.

    Where `batches_per_epoch` is None, it is what the first whole epoch had; until then no time left is shown.

        if progress.tick(step, epoch, batch):           # well under a microsecond when nothing is due
            progress.show({"loss": loss.item()})        # so device tensors are read only now
    """

    __slots__ = ("_batches", "_began", "_due", "_entered", "_epoch_shown", "_reading", "_screen", "_where")

    def __init__(
        self, total_epochs: int | None, batches_per_epoch: int | None, stream: TextIO | None
    ) -> None:
        self._screen = progress_display_for(stream)
        self._batches = batches_per_epoch
        self._reading = ProgressReading(total_epochs=total_epochs)
        self._where = (0, 0, 0)
        self._began = time.monotonic()
        self._due = -math.inf if stream is not None else math.inf  # never, where nothing is shown
        # when, and at which step and batch, it began to count
        self._entered: tuple[float, int, int] | None = None
        self._epoch_shown = -math.inf

    def tick(self, step: int, epoch: int, batch: int) -> bool:
        """Note that batch number `batch` (from 1) of `epoch` (from 0) is done; return whether to show now."""
        self._where = (step, epoch, batch)
        return self._due < math.inf and time.monotonic() >= self._due

    def show(self, values: Mapping[str, float]) -> None:
        """Show where the run is, with these values and those shown before."""
        began = time.monotonic()
        self._update_reading(values, began)
        self._draw_ignoring_broken_stream(self._screen.show)
        ended = time.monotonic()
        self._due = ended + max(self._screen.every_seconds, (ended - began) / SHARE_OF_TIME)

    def end_epoch(self, values: Mapping[str, float]) -> None:
        """Show the end of an epoch, or of all steps: on a stream that is no terminal this is a line, but not many a second."""
        now = time.monotonic()
        self._update_reading(values, now)
        if self._batches is None and self._entered and self._entered[2] <= 1:
            self._batches = self._where[2]
        last = self._reading.has_steps_only or self._reading.epoch + 1 == self._reading.total_epochs
        if last or now - self._epoch_shown >= self._screen.epoch_seconds:
            self._epoch_shown = now
            self._draw_ignoring_broken_stream(self._screen.show)

    def line(self, text: str) -> None:
        """Print a message above the bar; on standard error where none is shown."""
        if not isinstance(self._screen, SilentProgress):
            self._draw_ignoring_broken_stream(lambda _: self._screen.line(text))
            return
        with suppress(OSError, ValueError):  # a terminal that has gone away ends nothing
            sys.stderr.write(f"{text}\n")

    def close(self) -> None:
        """Leave the last state on the screen and give the terminal back; more calls do nothing."""
        self._due = math.inf
        self._draw_ignoring_broken_stream(lambda _: self._screen.close())
        self._screen = SilentProgress()

    def _draw_ignoring_broken_stream(self, shown: Callable[[ProgressReading], None]) -> None:
        """A terminal that has gone away (a dropped connection, a closed pipe) must not end the training."""
        try:
            shown(self._reading)
        except (OSError, ValueError):
            with suppress(OSError, ValueError):
                self._screen.close()
            # never tried again: each attempt may wait for a terminal that is not there
            self._screen, self._due = SilentProgress(), math.inf

    def _update_reading(self, values: Mapping[str, float], now: float) -> None:
        reading = self._reading
        reading.step, reading.epoch, reading.batch = self._where
        reading.batches_per_epoch = self._batches
        reading.values.update(values)
        if self._entered is None:
            self._entered = (now, reading.step, reading.batch)
        entered, first_step, _ = self._entered
        reading.elapsed_seconds = now - self._began
        if reading.step > first_step:
            reading.seconds_per_step = (now - entered) / (reading.step - first_step)
