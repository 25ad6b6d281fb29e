# SPDX-License-Identifier: Apache-2.0
"""When a run is to be saved: by steps, by time, at an epoch's end, at the best value of a metric, and when it is asked to."""

import time
from typing import Any

from truestep.doctor.runtime.operations import without_watched_operations
from truestep.run.agreement import LoopRequests
from truestep.run.state import RunState
from truestep.run.user_state import run_state_change_mark, run_state_digest


class DueSaveChecker:
    """Knows why a save is due; whether a run could go on from there is asked elsewhere."""

    def __init__(self, run: RunState) -> None:
        self._run, self._options = run, run.saving
        # a run that has just begun is not due by time
        self._saved_at = time.monotonic()
        self._best_found = False
        self.reason: str | None = None
        """Why the run is to be saved as soon as it can be gone on from; None where it is not."""
        self._metrics: dict[str, float] = {}  # logged for the weights as they are

    def saved(self) -> None:
        """The run was saved: nothing is due."""
        self._saved_at, self._best_found, self.reason = time.monotonic(), False, None

    @property
    def is_time(self) -> bool:
        """Whether `every_seconds` have gone since the run was saved."""
        seconds = self._options.every_seconds
        return seconds is not None and time.monotonic() - self._saved_at >= seconds

    @property
    def has_waited_since_last_save(self) -> bool:
        """Whether the last save was long enough ago for one at the end of an epoch."""
        return time.monotonic() - self._saved_at >= self._options.epoch_seconds

    @property
    def is_automatic_save_possible(self) -> bool:
        """Whether one could be due without anybody asking: most batches end without."""
        every = self._options.every_steps
        if every is not None and self._run.cursor.done % every == 0:
            return True
        return self._best_found or self.reason is not None or bool(self._metrics) or self.is_time

    def note(self, asked: LoopRequests) -> bool:
        """Note what is due between two batches; return whether that is anything, as soon as a run could go on from there."""
        self.reason = self._reason_to_save(asked) or self.reason
        return self.reason is not None or bool(self._metrics)

    def _reason_to_save(self, asked: LoopRequests) -> str | None:
        options, step = self._options, self._run.cursor.done
        if asked.save:
            return "asked for"
        if self._best_found:
            return "best"
        by_steps = options.every_steps and step % options.every_steps == 0
        return "periodic" if by_steps or asked.is_time else None

    def reason_to_save_at_epoch_end(self, *, has_waited: bool) -> str | None:
        """Return why the run is to be saved between two epochs: not for the epoch's sake where it was saved a moment ago."""
        # first: a best value is one of these very weights, which the next epoch changes
        if self._best_found:
            return "best"
        return self.reason or ("epoch" if self._options.at_epoch_end and has_waited else None)

    def logged(self, values: dict[str, float]) -> None:
        """See what was logged: a checkpoint knows the newest metrics, and the best is saved at the next moment."""
        # of the weights as they are, until the next pass changes them
        self._metrics = self._metrics | values if self._metrics else values
        name = self._options.best
        if name is not None and name in values and self._options.is_better(values[name], self._run.best):
            self._run.best = values[name]
            self._best_found = True

    def forget_logged_metrics(self) -> None:
        """What was logged was true of the weights as they were."""
        self._metrics = {}

    def metrics(self) -> dict[str, float]:
        """Return what a checkpoint says of the weights: what was logged of them, and what the run measures by itself."""
        newest = self._run.logbook.newest.items()
        return {name: value for name, value in newest if name not in self._run.logged} | self._metrics


class LastSavedPosition:
    """The place of the newest save."""

    def __init__(self, run: RunState) -> None:
        self._run = run
        self._place: tuple[Any, ...] | None = None
        self._digest: str | None = None  # of what is tracked, where the run may have ended

    def note(self, place: tuple[Any, ...]) -> None:
        """The run was saved at a place."""
        self._place, self._digest = place, None

    def note_tracked_as_saved(self) -> None:
        """What is tracked is as it was saved, or restored: all of it is read."""
        self._digest = self._tracked_digest()

    @property
    def has_moved_since_save(self) -> bool:
        """Whether the run has moved since it was saved."""
        return self._place != self.here()

    @property
    def has_tracked_state_changed(self) -> bool:
        """Whether what the run tracks has changed since it was saved; to be asked where it ends, since all of it is read."""
        return self._digest != self._tracked_digest()

    def _tracked_digest(self) -> str | None:
        with without_watched_operations():  # some calls for each tensor
            return run_state_digest(self._run.tracked.state())

    def here(self) -> tuple[Any, ...]:
        """Return what tells whether the run has moved; updates and `run.state` move without batches, too."""
        # cheap, since it is asked at each save: of `run.state` a glance, not its bytes
        cursor = self._run.cursor
        return (
            cursor.finished,
            cursor.epoch,
            cursor.done,
            *(stream.passes for stream in cursor.streams.values()),
            self._run.attempts,
            run_state_change_mark(self._run.user),
        )
