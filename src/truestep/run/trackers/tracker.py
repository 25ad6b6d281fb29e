# SPDX-License-Identifier: Apache-2.0
"""The interface of trackers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from truestep.report.metrics import MetricsLine


@dataclass(frozen=True, kw_only=True)
class Tracking:
    """What a tracker is told of the run when it begins or goes on.

    `history()` yields the lines of `metrics.jsonl` up to here, those after the checkpoint that the run goes on from cut off.
    """

    directory: Path
    config: Mapping[str, Any]
    step: int  # 0 for a new run
    history: Callable[[], Iterator[MetricsLine]]


class Tracker:
    """Something that keeps a run's values; a class of your own has those of these methods that it needs.

    What was told after `tracking.step` in an earlier life of the run is told again: `open` forgets it. A method that raises ends
    the tracker, with one warning, and never the run. Only rank 0 has trackers.
    """

    def open(self, tracking: Tracking) -> None:
        """Begin, or go on: called once before anything else, and again where a run that was closed is logged to."""

    def scalars(self, values: Mapping[str, float], step: int, epoch: int) -> None:
        """Take what one line of `metrics.jsonl` holds; the values are numbers, also NaN and the infinities."""

    def histogram(self, name: str, counts: Sequence[float], edges: Sequence[float], step: int) -> None:
        """Take a histogram: `counts[i]` values from `edges[i]` to `edges[i + 1]`."""

    def figure(self, name: str, figure: Any, step: int) -> None:
        """Take a matplotlib figure."""

    def graph(self, model: Any, batch: Any) -> None:
        """Take a module and an example of what it is called with."""

    def media(self, name: str, kind: str, path: Path, step: int) -> None:
        """Take what `run.log` was given as media, in its file; `kind` is "image" (PNG), "audio" (WAV) or "text"."""

    def flush(self) -> None:
        """Bring to disk what waits: a checkpoint is being saved."""

    def close(self) -> None:
        """The run ends."""
