# SPDX-License-Identifier: Apache-2.0
"""What a run writes down: averages of its updates every few steps, and whatever is logged by name."""

import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from truestep.core.device_specific import (
    AsyncHostCopy,
    has_async_tensor,
    move_to_one_device,
    peak_device_bytes,
    send_to_host,
    to_float64,
)
from truestep.core.errors import RunDirectoryError
from truestep.engine.parts import LearnerParts
from truestep.engine.result import DeferredGradientNorm, Update, read_gradient_norms
from truestep.report.media import MediaFileEntry
from truestep.report.metrics import MetricsFile, MetricsLine, read_metrics
from truestep.report.metrics_rollback import (
    NOTHING,
    MetricsPrefixMark,
    is_kept_metrics_file,
    remove_unneeded_metrics_copies,
    truncate_metrics_to_mark,
)
from truestep.run.media.folder import remove_unlisted_media
from truestep.run.metrics_window import LearnerLogWindow, read_log_windows
from truestep.run.trackers.hub import Trackers

Line = tuple[dict[str, Any], dict[str, float]]
Values = dict[str, Tensor | DeferredGradientNorm | float]
AskedValues = Callable[[], Values] | dict[str, float]
"""Numbers, or what gives the values when somebody reads."""


class PendingLogLines:
    """Lines whose values are not read yet: on their way from the device, or on a CPU where several are read together."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[dict[str, Any], AskedValues, AsyncHostCopy | None]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def push(self, where: dict[str, Any], values: AskedValues, *, at_hand: bool) -> None:
        """Take a line; its values are sent off now, or where they are at hand, asked for when somebody reads."""
        copy = None
        if not at_hand:
            assert callable(values)
            values, copy = _send_to_host_together(values())
        self._waiting.append((where, values, copy))

    def lines(self, *, wait: bool) -> Iterator[Line]:
        """Yield the lines whose values have arrived, in order; with `wait` all, as they come."""
        while self._waiting:
            where, values, copy = self._waiting[0]
            if copy is not None and not wait and not copy.has_arrived():
                return
            self._waiting.popleft()
            if callable(values):
                values = {name: float(value) for name, value in values().items()}
            yield where, values


def _send_to_host_together(values: Values) -> tuple[Callable[[], Values], AsyncHostCopy | None]:
    """Send tensors to the host together; return what gives the values once they are there, and their copy."""
    tensors = {name: value.detach() for name, value in values.items() if isinstance(value, Tensor)}
    if not has_async_tensor(tensors.values()):
        return lambda: values, None
    copy = send_to_host(torch.stack(move_to_one_device([to_float64(tensor) for tensor in tensors.values()])))
    return lambda: {**values, **dict(zip(tensors, copy.read().tolist(), strict=True))}, copy


if TYPE_CHECKING:
    import psutil

logger = logging.getLogger(__name__)

MEMORY_EVERY_SECONDS = 0.25
READ_SECONDS, READ_LINES = 0.25, 64  # lines are read together: after so long, or so many
MOST_COPIED = 1 << 17  # values of gradients, until norms are computed: half a MB, which stays in the caches


class RunLogbook:
    """Collects updates and writes lines of `metrics.jsonl`."""

    def __init__(
        self,
        directory: Path,
        every: int,
        learners: Mapping[str, LearnerParts],
        trackers: Trackers,
        *,
        writes: bool = True,
    ) -> None:
        """`writes`: whether this process does."""
        self.every = every
        self._writes = writes  # one process of a run writes; all know the same numbers
        self._newest: dict[str, float] = {}
        self.stall_seconds = 0.0
        """How long saving has held up the training so far."""
        self._trackers = trackers
        self.drawn: Callable[[], dict[str, float]] = dict
        """What has been drawn of each source of a mixture."""
        self._path = directory / "metrics.jsonl"
        self._file: MetricsFile | None = None
        self._learners = learners
        self._windows: dict[str, LearnerLogWindow] = {}
        self._readback = PendingLogLines()
        self._unread: list[LearnerLogWindow] = []  # of lines that wait
        self._norms: list[DeferredGradientNorm] = []  # of gradients that are copied
        self._num_copied = 0.0  # values of these
        self._memory_read, self._memory_bytes = 0.0, 0.0
        self._began = self._since = self._read = time.monotonic()

    @property
    def newest(self) -> dict[str, float]:
        """The values logged last, by name."""
        self._write_pending_lines()
        return self._newest

    @property
    def file(self) -> MetricsFile:
        """The open file."""
        if self._file is None:
            self._file = MetricsFile(self._path)
        return self._file

    @property
    def elapsed_seconds(self) -> float:
        """Seconds that the run has been at work, those before it was resumed too."""
        return time.monotonic() - self._began

    def updated(self, learner: LearnerParts, update: Update) -> None:
        """Note an update of a learner."""
        window = self._windows.get(learner.name)
        if window is None:
            window = self._windows[learner.name] = LearnerLogWindow()
        window.add(update)

    def write_if_due(self, step: int, epoch: int) -> bool:
        """Write a line after every so many steps; return whether it was."""
        if step % self.every:
            return False
        self.write_window(step, epoch)
        return True

    def write_window(self, step: int, epoch: int) -> None:
        """Write one line about the updates since the last one."""
        if not self._windows:
            return
        windows, self._windows = self._windows, {}
        many = len(self._learners) > 1
        parts = [
            (f"{name}/" if many else "", windows[name], self._current_learner_values(learner, windows[name]))
            for name, learner in self._learners.items()
            if name in windows
        ]
        context = next(iter(self._learners.values())).context  # that of all
        if context.is_host:
            self._unread += windows.values()
        now = time.monotonic()
        values = partial(
            _values_of_line,
            parts,
            self._memory_and_stall_values(now, context.device) | self.drawn(),
            max(now - self._since, 1e-9),
        )
        self._since = now
        self._write_line({"step": step, "epoch": epoch}, values, now, at_hand=context.is_host)

    def _current_learner_values(self, learner: LearnerParts, window: LearnerLogWindow) -> Values:
        """Return what is true now, and not of the whole window."""
        norm = window.note_norm()
        if isinstance(norm, DeferredGradientNorm):
            self._norms.append(norm)
            self._num_copied += learner.weights.num_at_hand
            if self._num_copied > MOST_COPIED:
                self._compute_norms()
        values: Values = {} if norm is None else {"gradient_norm": norm}
        values["learning_rate"] = learner.learning_rate
        values["updates_skipped"] = float(learner.counters.skipped)
        return values

    def _compute_norms(self) -> None:
        """Compute the norms of gradients that are copied, all together."""
        norms, self._norms, self._num_copied = self._norms, [], 0
        read_gradient_norms(norms)

    def _memory_and_stall_values(self, now: float, device: torch.device) -> dict[str, float]:
        if now - self._memory_read > MEMORY_EVERY_SECONDS:
            self._memory_read, self._memory_bytes = now, _peak_memory_bytes(device)
        return {"memory_bytes": self._memory_bytes, "save_stall_seconds": self.stall_seconds}

    def write(
        self, step: int, epoch: int, values: dict[str, float], media: Mapping[str, MediaFileEntry]
    ) -> None:
        """Write one line of values that are on the host, and of media that are in their files."""
        where = {"step": step, "epoch": epoch, "media": media}
        self._write_line(where, values, time.monotonic(), at_hand=True)
        self.flush()

    def _write_line(self, where: dict[str, Any], values: AskedValues, now: float, *, at_hand: bool) -> None:
        where["elapsed_seconds"] = now - self._began
        self._readback.push(where, values, at_hand=at_hand)
        if len(self._trackers) or now - self._read > READ_SECONDS or len(self._readback) >= READ_LINES:
            self._read = now
            self._write_pending_lines()

    def flush(self) -> None:
        """Wait for values that are still on their way from the device, and write them."""
        self._write_pending_lines(wait=True)

    def _write_pending_lines(self, *, wait: bool = False) -> None:
        if self._unread:
            unread, self._unread = self._unread, []
            self._compute_norms()
            read_log_windows(unread)
        for where, values in list(self._readback.lines(wait=wait)):
            where["elapsed_seconds"] = round(where["elapsed_seconds"], 3)
            if self._writes:
                self._send_to_trackers(where, values)  # before it is written: a tracker may yet read the file
                self.file.append(**where, values=values)
            self._newest.update(values)

    def _send_to_trackers(self, where: dict[str, Any], values: Mapping[str, float]) -> None:
        self._trackers.scalars(values, where["step"], where["epoch"])
        for name, line in where.get("media", {}).items():
            self._trackers.media(name, line.kind, self._path.parent / line.file, where["step"])

    def state_dict(self) -> dict[str, Any]:
        """Return the end of the file (which is on disk then) and what is not in it yet."""
        self.flush()
        if self._writes:
            # The mark names bytes of the file: after a loss of power they must be there if the checkpoint is.
            self.file.flush(durable=True)
            self._trackers.flush()
        return {
            "mark": list(self.file.mark if self._writes else NOTHING),
            "windows": {name: window.state_dict() for name, window in self._windows.items()},
            "elapsed_seconds": self.elapsed_seconds,
        }

    def remove_lines_after(self, mark: MetricsPrefixMark, others: Sequence[MetricsPrefixMark] = ()) -> None:
        """Remove every line after `mark`; what `others` may need is kept aside."""
        self.close()
        if not self._writes:
            return
        try:
            found = truncate_metrics_to_mark(self._path, mark, others)
            remove_unlisted_media(self._path)
        except OSError as error:
            raise RunDirectoryError(
                f"{self._path} could not be brought back to where the checkpoint was saved: {error}. The run's history would not "
                "be the run's. Make it a file that can be read and written, with room on the disk, and resume again."
            ) from error
        if not found:
            logger.warning(
                "%s does not begin with the %d bytes it held when the checkpoint was saved: part of the run's history is missing",
                self._path,
                mark.position,
            )

    def forget(self, marks: Callable[[], Sequence[MetricsPrefixMark]]) -> None:
        """Remove what is kept aside and no checkpoint needs any more; a failure leaves it for the next time."""
        with suppress(OSError):
            if is_kept_metrics_file(self._path):
                remove_unneeded_metrics_copies(self._path, marks())
                remove_unlisted_media(self._path)

    def load_state_dict(self, state: dict[str, Any], others: Sequence[MetricsPrefixMark]) -> None:
        """Cut the file back to where it was and take over what was not in it yet; `others`: of other checkpoints."""
        self.remove_lines_after(MetricsPrefixMark(*state["mark"]), others)
        # so that the time of the whole run goes on where it stood
        self._began = time.monotonic() - state["elapsed_seconds"]
        for name, window in state["windows"].items():
            self._windows[name] = LearnerLogWindow()
            self._windows[name].load_state_dict(window)

    def close(self) -> None:
        """Write everything and close the file; it is opened again when something is logged."""
        self.flush()
        if self._file is not None:
            self._file.close()
            self._file = None
        self._trackers.close()

    def history(self) -> Iterator[MetricsLine]:
        """Yield the lines that are in the file."""
        return read_metrics(self._path) if self._path.exists() else iter(())


def _values_of_line(
    parts: Sequence[tuple[str, LearnerLogWindow, Values]], machine: dict[str, float], seconds: float
) -> Values:
    """Return the values of a line."""
    values: Values = {}
    for prefix, window, measured in parts:
        values |= {prefix + name: value for name, value in (window.averages() | measured).items()}
    examples = max(window.examples for _, window, _ in parts)
    return {**values, "samples_per_second": examples / seconds, **machine}


def _peak_memory_bytes(device: torch.device) -> float:
    """Return the most memory that tensors have taken on the run's device, or what this process holds now."""
    most = peak_device_bytes(device)
    return float(_psutil_process(os.getpid()).memory_info().rss if most is None else most)


@cache
def _psutil_process(number: int) -> "psutil.Process":
    """Return what knows of a process; to find it takes as long as to ask it."""
    import psutil  # 10 ms, which a training that logs nothing need not pay

    return psutil.Process(number)
