# SPDX-License-Identifier: Apache-2.0
"""What a run's directory says about the run; a missing or damaged file costs its own section alone."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from truestep.core.atomic_files import read_regular_file
from truestep.core.charts.curve import ChartCurve
from truestep.core.secret_values import hide_secrets_and_hashes
from truestep.report.layers import LAYERS, read_reported_looks
from truestep.report.media import MediaFileEntry
from truestep.report.media_samples import ReportedMedia, read_reported_media
from truestep.report.metric_columns import MetricColumns, Steps, Values, read_metric_columns
from truestep.report.run_file_names import CONFIG, METRICS

FINDINGS = "doctor.json"


@dataclass(kw_only=True)
class RunRecord:
    """A run as its files tell it."""

    name: str
    config: Any = None
    environment: Any = None
    choices: list[dict[str, Any]] = field(default_factory=list)
    findings: list[dict[str, Any]] = field(default_factory=list)  # of the doctor, in the first updates
    looks: list[dict[str, Any]] = field(default_factory=list)  # at the layers
    curves: dict[str, ChartCurve] = field(default_factory=dict)
    samples: list[ReportedMedia] = field(default_factory=list)  # pictures, sounds and texts
    elapsed: ChartCurve | None = None
    epoch_ends: dict[int, int] = field(default_factory=dict)  # the last logged step of each
    first_step: int = 0
    last_step: int = 0
    num_lines: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def epoch_starts(self) -> list[int]:
        """The first step of each epoch: the one after the last of the epoch before."""
        return [self.first_step, *(end + 1 for end in sorted(self.epoch_ends.values())[:-1])]

    @property
    def elapsed_seconds(self) -> float:
        """How long the run took, as far as it was logged."""
        return self.elapsed.highest.value if self.elapsed and self.elapsed.highest else 0.0


def read_run_record(directory: Path) -> RunRecord:
    """Read the files of a run's directory."""
    record = RunRecord(name=directory.resolve().name)
    record.config = _read_json_or_note_problem(directory / CONFIG, record)
    record.environment = _read_json_or_note_problem(directory / "environment.json", record)
    choices = _read_json_or_note_problem(directory / "choices.json", record)
    if isinstance(choices, list):
        record.choices = [choice for choice in choices if isinstance(choice, dict)]
    found = _read_json_or_note_problem(directory / FINDINGS, record)
    if isinstance(found, dict) and isinstance(found.get("findings"), list):
        record.findings = [finding for finding in found["findings"] if isinstance(finding, dict)]
    record.looks = list(read_reported_looks(directory / LAYERS))
    record.samples = read_reported_media(directory, _read_metrics(directory / METRICS, record))
    return record


def read_run_records(directories: Sequence[Path]) -> list[RunRecord]:
    """Read the files of several runs; their names tell them apart."""
    records = [read_run_record(path) for path in directories]
    for record, name in zip(records, _distinguishing_names(directories), strict=True):
        record.name = name
    return records


def _distinguishing_names(paths: Sequence[Path]) -> list[str]:
    """Return a short name for each folder: its own, with as many of those above it as tell the runs apart."""
    whole = [path.resolve() for path in paths]
    names: list[str] = []
    for depth in range(1, max(len(path.parts) for path in whole) + 1):
        names = ["/".join(path.parts[-depth:]) for path in whole]
        if len(set(names)) == len(names):
            break
    return names


def read_curves(directory: Path) -> RunRecord:
    """Read the metrics of a run alone."""
    record = RunRecord(name=directory.resolve().name)
    _read_metrics(directory / METRICS, record)
    return record


def _read_json_or_note_problem(path: Path, record: RunRecord) -> Any:
    try:
        return hide_secrets_and_hashes(json.loads(read_regular_file(path)))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        record.problems.append(f"{path.name} could not be read: {error}")
        return None


def _read_metrics(path: Path, record: RunRecord) -> list[tuple[int, str, MediaFileEntry]]:
    """Add the file's lines to the record; return the media that they name."""
    num_spoiled = 0
    media: list[tuple[int, str, MediaFileEntry]] = []
    try:
        for columns in read_metric_columns(path):
            num_spoiled += columns.num_spoiled
            media += columns.media
            _append_columns(columns, record)
    except FileNotFoundError:
        return media
    except OSError as error:
        record.problems.append(f"{path.name} could not be read: {error}")
        return media
    if num_spoiled:
        lines = "1 line" if num_spoiled == 1 else f"{num_spoiled:,} lines"
        record.problems.append(f"{lines} of {path.name} could not be read and are left out.")
    return media


def _append_columns(columns: MetricColumns, record: RunRecord) -> None:
    """Add lines to the curves."""
    steps = columns.steps
    if len(steps):
        _record_epoch_ends(columns.epochs, steps, record)
        least = int(steps.min())
        record.first_step = least if record.num_lines == 0 else min(record.first_step, least)
        record.last_step = max(record.last_step, int(steps.max()))
        record.num_lines += len(steps)
        record.elapsed = _append_to_curve(record.elapsed, steps, columns.elapsed_seconds)
    for name, (its_steps, values) in columns.values.items():
        record.curves[name] = _append_to_curve(record.curves.get(name), its_steps, values)


def _record_epoch_ends(epochs: Steps, steps: Steps, record: RunRecord) -> None:
    """Note the last step of each epoch; lines of one epoch stand together."""
    ends = np.append(np.flatnonzero(epochs[1:] != epochs[:-1]), len(epochs) - 1)
    for epoch, last in zip(epochs[ends].tolist(), steps[ends].tolist(), strict=True):
        record.epoch_ends[epoch] = max(last, record.epoch_ends.get(epoch, last))


def _append_to_curve(curve: ChartCurve | None, steps: Steps, values: Values) -> ChartCurve:
    curve = curve or ChartCurve(first_step=int(steps[0]))
    curve.add(steps, values)
    return curve
