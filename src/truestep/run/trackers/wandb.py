# SPDX-License-Identifier: Apache-2.0
"""`ts.WandbTracker`: a run's values for Weights & Biases."""

import html
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from truestep.core.errors import MissingPackageError
from truestep.run.trackers.service_run_ids import read_tracker_id, write_tracker_id
from truestep.run.trackers.tracker import Tracker, Tracking


class WandbTracker(Tracker):
    """Logs scalars, histograms, figures and media to Weights & Biases; needs the extra `[wandb]`.

    `WANDB_MODE=offline` keeps all in the run's directory, `wandb sync` sends it later. The run's step is wandb's x axis. A run
    that goes on is the same one there; what wandb has of it already is not told again. Where it is offline, all lines up to the
    checkpoint are: nobody knows what a kill has left of them.

    Args:
        project: wandb's project; what wandb takes by default.
        settings: whatever else `wandb.init` takes: `name`, `group`, `tags`, `mode`, `entity`.
    """

    def __init__(self, project: str | None = None, **settings: Any) -> None:
        self._settings = {"project": project, **settings}
        self._run: Any = None
        self._begins = 0
        _import_wandb()  # a package that is missing is said before the training

    @property
    def run(self) -> Any:
        """The open run of wandb, for whatever it takes besides."""
        assert self._run is not None, "the run has not begun, or has ended"
        return self._run

    def open(self, tracking: Tracking) -> None:
        """Begin a run of wandb, or go on with the one that this run had."""
        known = read_tracker_id(tracking.directory, "wandb")
        name = known or secrets.token_hex(8)
        settings = {
            "id": name,
            "name": tracking.directory.name,
            "dir": str(tracking.directory),
            "config": dict(tracking.config),
            "resume": "allow",
            **self._settings,
        }
        self._run = _import_wandb().init(**settings)
        write_tracker_id(tracking.directory, "wandb", name)
        self._run.define_metric("*", step_metric="step")
        self._begins = self._run.summary.get("step") or 0  # offline it knows of none
        for line in tracking.history():
            self.scalars(line.values, line.step, line.epoch)

    def scalars(self, values: Mapping[str, float], step: int, epoch: int) -> None:
        """Log a line."""
        self._log_if_new_step({**values, "epoch": epoch}, step)

    def histogram(self, name: str, counts: Sequence[float], edges: Sequence[float], step: int) -> None:
        """Log a histogram."""
        self._log_if_new_step(
            {name: _import_wandb().Histogram(np_histogram=(list(counts), list(edges)))}, step
        )

    def figure(self, name: str, figure: Any, step: int) -> None:
        """Log a matplotlib figure as a picture."""
        self._log_if_new_step({name: _import_wandb().Image(figure)}, step)

    def media(self, name: str, kind: str, path: Path, step: int) -> None:
        """Log a picture, a sound, or a text."""
        wandb = _import_wandb()
        if kind == "text":
            made = wandb.Html(f"<pre>{html.escape(path.read_text('utf-8'))}</pre>", inject=False)
        else:
            made = (wandb.Audio if kind == "audio" else wandb.Image)(str(path))
        self._log_if_new_step({name: made}, step)

    def close(self) -> None:
        """End wandb's run, which sends what waits."""
        if self._run is not None:
            self._run.finish()
            self._run = None

    def _log_if_new_step(self, values: Mapping[str, Any], step: int) -> None:
        if step >= self._begins:
            self.run.log({**values, "step": step})


def _import_wandb() -> Any:
    try:
        import wandb
    except ImportError as error:
        raise MissingPackageError(
            "wandb is not installed. Install it with: pip install 'truestep[wandb]'", name="wandb"
        ) from error
    return wandb
