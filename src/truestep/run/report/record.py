# SPDX-License-Identifier: Apache-2.0
"""What a run's directory says about the run; a missing or damaged file costs its own section alone."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from truestep.run.first_steps import FINDINGS
from truestep.run.metrics import MetricsLine, read_metrics_or_none
from truestep.run.report.curve import Curve

CHUNK = 16_384


@dataclass(kw_only=True)
class Record:
    """A run as its files tell it."""

    name: str
    config: Any = None
    environment: Any = None
    choices: list[dict[str, Any]] = field(default_factory=list)
    findings: list[dict[str, Any]] = field(default_factory=list)  # of the doctor, in the first updates
    curves: dict[str, Curve] = field(default_factory=dict)
    elapsed: Curve | None = None
    epochs: dict[int, int] = field(default_factory=dict)  # the first step of each
    first_step: int = 0
    last_step: int = 0
    num_lines: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def elapsed_seconds(self) -> float:
        """How long the run took, as far as it was logged."""
        return self.elapsed.highest.value if self.elapsed and self.elapsed.highest else 0.0


def read_record(directory: Path) -> Record:
    """Read the files of a run's directory."""
    record = Record(name=directory.resolve().name)
    record.config = _json(directory / "config.json", record)
    record.environment = _json(directory / "environment.json", record)
    choices = _json(directory / "choices.json", record)
    if isinstance(choices, list):
        record.choices = [choice for choice in choices if isinstance(choice, dict)]
    found = _json(directory / FINDINGS, record)
    if isinstance(found, dict) and isinstance(found.get("findings"), list):
        record.findings = [finding for finding in found["findings"] if isinstance(finding, dict)]
    _read_metrics(directory / "metrics.jsonl", record)
    return record


def _json(path: Path, record: Record) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        record.problems.append(f"{path.name} could not be read: {error}")
        return None


def _read_metrics(path: Path, record: Record) -> None:
    try:
        num_spoiled = sum(_take(chunk, record) for chunk in _chunks(read_metrics_or_none(path)))
    except FileNotFoundError:
        return
    except OSError as error:
        record.problems.append(f"{path.name} could not be read: {error}")
        return
    if num_spoiled:
        lines = "1 line" if num_spoiled == 1 else f"{num_spoiled:,} lines"
        record.problems.append(f"{lines} of {path.name} could not be read and are left out.")


def _chunks(lines: Iterator[MetricsLine | None]) -> Iterator[list[MetricsLine | None]]:
    while chunk := list(islice(lines, CHUNK)):
        yield chunk


def _take(chunk: Iterable[MetricsLine | None], record: Record) -> int:
    """Add a chunk of lines to the curves; return how many could not be read."""
    lines = [line for line in chunk if line is not None]
    gathered: dict[str, tuple[list[int], list[float]]] = {}
    for line in lines:
        record.epochs.setdefault(line.epoch, line.step)
        for name, value in line.values.items():
            steps, values = gathered.setdefault(name, ([], []))
            steps.append(line.step)
            values.append(value)
    if lines:
        _note_extent(lines, record)
        times = ([line.step for line in lines], [line.elapsed_seconds for line in lines])
        record.elapsed = _add(record.elapsed, *times)
    for name, (steps, values) in gathered.items():
        record.curves[name] = _add(record.curves.get(name), steps, values)
    return sum(line is None for line in chunk)


def _note_extent(lines: list[MetricsLine], record: Record) -> None:
    steps = [line.step for line in lines]
    record.first_step = min(steps) if record.num_lines == 0 else min(record.first_step, *steps)
    record.last_step = max(record.last_step, *steps)
    record.num_lines += len(lines)


def _add(curve: Curve | None, steps: list[int], values: list[float]) -> Curve:
    curve = curve or Curve(first_step=steps[0])
    curve.add(np.array(steps, dtype=np.int64), np.array(values, dtype=np.float64))
    return curve
