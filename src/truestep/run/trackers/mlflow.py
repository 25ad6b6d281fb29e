# SPDX-License-Identifier: Apache-2.0
"""`ts.MlflowTracker`: a run's values for MLflow."""

import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from truestep.core.errors import MissingPackageError
from truestep.run.trackers.service_run_ids import read_tracker_id, write_tracker_id
from truestep.run.trackers.tracker import Tracker, Tracking

MOST_WAITING = 500  # values that are sent together: a server is asked once for each of these
_REFUSED = re.compile(r"[^\w\-. /:]")  # what MLflow takes in no name


class MlflowTracker(Tracker):
    """Logs scalars, figures and media to MLflow, the configuration as parameters; needs the extra `[mlflow]`.

    A run that goes on is the same one there, and what MLflow has of it already is not told again. It uses MLflow's client: a run
    that your code has active by `mlflow.start_run` stays as it is.

    Args:
        experiment: the name of the experiment, which is made where it isn't there; MLflow's default one if left out.
        tracking_uri: where MLflow keeps it all; what `MLFLOW_TRACKING_URI` or MLflow says by default.
        tags: of the run there, by name.
    """

    def __init__(
        self,
        experiment: str | None = None,
        *,
        tracking_uri: str | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        self._experiment, self._uri, self._tags = experiment, tracking_uri, dict(tags or {})
        self._client: Any = None
        self._id = ""
        self._last: dict[str, int] = {}  # the last step that the service has, by name
        self._waiting: list[Any] = []
        _import_mlflow()  # a package that is missing is said before the training

    @property
    def run_id(self) -> str:
        """MLflow's id of the run, for whatever else is logged to it."""
        return self._id

    def open(self, tracking: Tracking) -> None:
        """Begin a run of MLflow, or go on with the one that this run had."""
        self._client = _import_mlflow().MlflowClient(self._uri)
        known = read_tracker_id(tracking.directory, "mlflow")
        self._last = {}
        if known is None:
            self._create_mlflow_run(tracking)
        else:
            self._continue_mlflow_run(known)
        for line in tracking.history():
            self.scalars(line.values, line.step, line.epoch)

    def _create_mlflow_run(self, tracking: Tracking) -> None:
        made = self._client.create_run(
            self._experiment_id(), tags=self._tags, run_name=tracking.directory.name
        )
        self._id = made.info.run_id
        write_tracker_id(tracking.directory, "mlflow", self._id)
        for name, value in tracking.config.items():
            self._client.log_param(self._id, _replace_refused_characters(name), value)

    def _continue_mlflow_run(self, known: str) -> None:
        self._id = known
        self._client.update_run(known, status="RUNNING")
        for name in self._client.get_run(known).data.metrics:
            history = self._client.get_metric_history(known, name)
            self._last[name] = max((each.step for each in history), default=-1)

    def _experiment_id(self) -> str:
        if self._experiment is None:
            return "0"
        found = self._client.get_experiment_by_name(self._experiment)
        return str(found.experiment_id if found else self._client.create_experiment(self._experiment))

    def scalars(self, values: Mapping[str, float], step: int, epoch: int) -> None:
        """Log a line; it is sent with others."""
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        named = {
            _replace_refused_characters(name): value
            for name, value in {**values, "epoch": float(epoch)}.items()
        }
        self._waiting += [
            Metric(name, value, now, step) for name, value in named.items() if step > self._last.get(name, -1)
        ]
        if len(self._waiting) >= MOST_WAITING:
            self.flush()

    def figure(self, name: str, figure: Any, step: int) -> None:
        """Log a matplotlib figure as a picture."""
        self._client.log_figure(self._id, figure, f"{_replace_refused_characters(name)}/{step:09d}.png")

    def media(self, name: str, kind: str, path: Path, step: int) -> None:
        """Log a file of the run as an artifact."""
        self._client.log_artifact(self._id, str(path), _replace_refused_characters(name))

    def flush(self) -> None:
        """Send what waits."""
        while self._waiting:
            some, self._waiting = self._waiting[:MOST_WAITING], self._waiting[MOST_WAITING:]
            self._client.log_batch(self._id, metrics=some)

    def close(self) -> None:
        """Send what waits, and say that the run has ended."""
        if self._client is not None:
            self.flush()
            self._client.set_terminated(self._id)
            self._client = None


def _replace_refused_characters(name: str) -> str:
    return _REFUSED.sub("_", name)


def _import_mlflow() -> Any:
    try:
        import mlflow
    except ImportError as error:
        raise MissingPackageError(
            "mlflow is not installed. Install it with: pip install 'truestep[mlflow]'", name="mlflow"
        ) from error
    return mlflow
