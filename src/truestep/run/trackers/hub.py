# SPDX-License-Identifier: Apache-2.0
"""A run's trackers together: each is told everything, and one that fails is left out from then on."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from truestep.core.device_specific import to_float64
from truestep.core.errors import OptionError
from truestep.run.trackers.tracker import Tracker, Tracking

NUM_BINS = 64
_BY_WORD = {"wandb": 'ts.WandbTracker("project")', "mlflow": 'ts.MlflowTracker("experiment")'}


def _tracker_constructor_text(given: object) -> str:
    """Return what makes the tracker whose service is named, by a word or by an object of its own."""
    said = f"{given} {type(given).__module__}".lower()
    return next((made for word, made in _BY_WORD.items() if word in said), "ts.TensorBoardTracker()")


class Trackers:
    """What `run.trackers` is: figures, histograms and the graph for those that take them."""

    def __init__(
        self, trackers: Iterable[Tracker], tracking: Callable[[], Tracking], say: Callable[[str], None]
    ) -> None:
        if not isinstance(trackers, list | tuple):
            raise OptionError(
                f"ts.Run(trackers={trackers!r}): give a list of them, trackers=[{_tracker_constructor_text(trackers)}]."
            )
        self._live = [_check_is_tracker(tracker) for tracker in trackers]
        self._tracking = tracking
        self._say = say
        self._is_open = False

    def __len__(self) -> int:
        return len(self._live)

    # ------------------------------------------------------------------ for the loop's own code

    def histogram(self, name: str, values: Any) -> None:
        """Give trackers a histogram of a tensor's finite values, at the run's step; this waits for the device."""
        if not self._live:
            return
        finite = to_float64(torch.as_tensor(values).detach().flatten()).cpu()
        finite = finite[finite.isfinite()]
        if finite.numel():
            low, high = float(finite.min()), float(finite.max())
            counts, edges = torch.histogram(
                finite, NUM_BINS, range=(low, high if high > low else low + 1e-12)
            )
            self.counted(name, counts.tolist(), edges.tolist(), self._tracking().step)

    def figure(self, name: str, figure: Any) -> None:
        """Give trackers a matplotlib figure, at the run's step."""
        self._call_live_trackers("figure", name, figure, self._tracking().step)

    def graph(self, model: Any, batch: Any) -> None:
        """Give trackers a module, or a learner, and an example of its input."""
        self._call_live_trackers("graph", model, batch)

    # ------------------------------------------------------------------ for the run

    def scalars(self, values: Mapping[str, float], step: int, epoch: int) -> None:
        """Tell of a line of metrics."""
        self._call_live_trackers("scalars", values, step, epoch)

    def counted(self, name: str, counts: list[float], edges: list[float], step: int) -> None:
        """Tell of a histogram that is counted already."""
        self._call_live_trackers("histogram", name, counts, edges, step)

    def media(self, name: str, kind: str, path: Path, step: int) -> None:
        """Tell of a file of the run's directory."""
        self._call_live_trackers("media", name, kind, path, step)

    def open(self) -> None:
        """The run begins, or goes on: what was told after its step is told again from here."""
        if not self._is_open:
            self._is_open = True
            self._call_or_drop_tracker("open", self._tracking())

    def flush(self) -> None:
        """Let them bring to disk what waits."""
        if self._is_open:
            self._call_live_trackers("flush")

    def close(self) -> None:
        """The run ends; it may be logged to afterwards."""
        if self._is_open:
            self._call_live_trackers("close")
            self._is_open = False

    def _call_live_trackers(self, method: str, *values: Any) -> None:
        if not self._live:
            return
        self.open()
        self._call_or_drop_tracker(method, *values)

    def _call_or_drop_tracker(self, method: str, *values: Any) -> None:
        for tracker in list(self._live):
            try:
                getattr(tracker, method)(*values)
            except Exception as error:  # noqa: BLE001 - whatever a service, a network or a disk does: the training goes on
                self._live.remove(tracker)
                self._say(
                    f"the tracker {type(tracker).__name__} failed in {method} ({type(error).__name__}: {error}) and is told "
                    "nothing more; metrics.jsonl has everything"
                )


def _check_is_tracker(tracker: Any) -> Tracker:
    if isinstance(tracker, Tracker):
        return tracker
    hint = " Write it with parentheses." if isinstance(tracker, type) else ""
    raise OptionError(
        f"ts.Run(trackers=[...]) was given {tracker!r}, which is no ts.Tracker.{hint} There are ts.CsvTracker(), "
        "ts.TensorBoardTracker(), ts.WandbTracker() and ts.MlflowTracker(); "
        "another service's is a class of yours of ten lines that derives from ts.Tracker."
    )
