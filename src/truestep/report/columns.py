# SPDX-License-Identifier: Apache-2.0
"""Lines of metrics as columns, thousands of lines at a time: a report over a million of them takes seconds."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truestep.report.alike import LinePattern
from truestep.report.media import MediaLine, decode_media
from truestep.report.metrics import (
    MAX_STEP,
    NOT_IN_JSON,
    MetricsLine,
    decode_metrics_line,
    is_metric_name,
    metrics_lines_of,
    raw_metrics_blocks,
)

MOST_PATTERNS = 8  # of lines read together; where there are more, JSON is as quick

Steps = NDArray[np.int64]
Values = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class MetricColumns:
    """Lines that follow one another: `values` are each metric's steps and values, where it was logged."""

    steps: Steps
    epochs: Steps
    elapsed_seconds: Values
    values: dict[str, tuple[Steps, Values]]
    num_spoiled: int = 0
    media: list[tuple[int, str, MediaLine]] = field(default_factory=list)
    """Step, name and file of what was logged besides numbers."""


def read_metric_columns(path: Path) -> Iterator[MetricColumns]:
    """Yield the lines of a `metrics.jsonl` in their order; those that a crash or a disk spoiled are counted."""
    for text in raw_metrics_blocks(path):
        found = _alike(text)
        if found is None:
            lines = metrics_lines_of(text)
            found = _at_once(lines) or _one_by_one(lines)
        yield found


def _alike(text: bytes) -> MetricColumns | None:
    """Read lines of few patterns; None where there are more, or any line is not quite as a run writes it."""
    left = np.arange(text.count(b"\n"))
    heads = np.empty((2, len(left)), dtype=np.int64), np.empty(len(left))
    parts: dict[str, list[tuple[NDArray[np.int64], Any]]] = {}
    for _ in range(MOST_PATTERNS):
        pattern = LinePattern.of(text[: text.find(b"\n") + 1])
        found = pattern.read(text) if pattern is not None else None
        if pattern is None or found is None:
            return None
        rows, left, text = left[found.rows], left[found.left], found.rest
        columns = [_column(each, "i" if i < 2 else "if") for i, each in enumerate(found.columns)]
        if any(each is None for each in columns):
            return None
        heads[0][:, rows], heads[1][rows] = columns[:2], columns[2]
        for name, values in zip(pattern.names, columns[3:], strict=True):
            parts.setdefault(name, []).append((rows, values.astype(np.float64)))
        if not text:
            break
    (steps, epochs), elapsed = heads
    if text or not _could_be(steps, epochs, elapsed, ()):
        return None
    joined = {name: _joined(steps, found) for name, found in parts.items()}
    return MetricColumns(steps=steps, epochs=epochs, elapsed_seconds=elapsed, values=joined)


def _at_once(lines: list[bytes]) -> MetricColumns | None:
    """Read lines as one JSON document; None where any of them is not quite as a run writes it."""
    text = b",".join(lines)
    whole = text.startswith(b'{"step":') and text.endswith(b"}\n")
    if not whole or text.count(b'}\n,{"step":') != len(lines) - 1:  # one whole object a line
        return None
    try:
        found = json.loads(f"[{text.decode()}]")
        steps = _column([line["step"] for line in found], "i")
        epochs = _column([line["epoch"] for line in found], "i")
        elapsed = _column([line["elapsed_seconds"] for line in found], "if")
        values = [line["values"] for line in found]
        if len(found) != len(lines) or any(each is None for each in (steps, epochs, elapsed)):
            return None
        columns = _columns_of(steps, values)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None
    if columns is None or not _could_be(steps, epochs, elapsed, columns):
        return None
    media = [
        (int(line["step"]), name, each)
        for line in found
        if "media" in line
        for name, each in decode_media(line["media"]).items()
    ]
    return MetricColumns(
        steps=steps, epochs=epochs, elapsed_seconds=elapsed.astype(np.float64), values=columns, media=media
    )


def _could_be(steps: Any, epochs: Any, elapsed: Any, names: Iterable[str]) -> bool:
    """Whether all lines pass what `decode` asks of each."""
    counts = np.concatenate([steps, epochs])
    within = not counts.size or (counts.min() >= 0 and counts.max() < MAX_STEP)
    return bool(within and np.isfinite(elapsed).all() and all(map(is_metric_name, names)))


def _columns_of(steps: Any, rows: Sequence[Mapping[str, Any]]) -> dict[str, tuple[Steps, Values]] | None:
    """Return the column of each name; rows with the same names in the same order are turned together."""
    alike: dict[tuple[str, ...], list[int]] = {}
    for number, names in enumerate(map(tuple, rows)):
        alike.setdefault(names, []).append(number)
    parts: dict[str, list[tuple[NDArray[np.int64], Any]]] = {}
    for names, numbers in alike.items():
        chosen = np.array(numbers)
        turned = zip(*[rows[number].values() for number in numbers], strict=True)
        for name, column in zip(names, turned, strict=True):
            values = _column(column, "if")
            # NaN and the infinities stand in the file as texts; most columns have none, and are not walked in Python.
            if values is None:
                values = _column([NOT_IN_JSON.get(value, value) for value in column], "if")
            if values is None:
                return None
            parts.setdefault(name, []).append((chosen, values.astype(np.float64)))
    return {name: _joined(steps, found) for name, found in parts.items()}


def _joined(steps: Any, parts: list[tuple[NDArray[np.int64], Any]]) -> tuple[Steps, Values]:
    rows = np.concatenate([rows for rows, _ in parts])
    values = np.concatenate([values for _, values in parts])
    if len(parts) > 1:
        order = np.argsort(rows)
        rows, values = rows[order], values[order]
    return steps[rows], values


def _column(items: Sequence[Any], kinds: str) -> Any:
    """Return numbers as an array of one of these kinds; None where any of them is something else."""
    # Numbers beyond int64, and anything that is no number, make an array of another kind.
    array = np.array(items)
    return array if array.ndim == 1 and array.dtype.kind in kinds else None


def _one_by_one(raw: list[bytes]) -> MetricColumns:
    lines = [decode_metrics_line(line) if line.endswith(b"\n") else None for line in raw]
    whole: list[MetricsLine] = [line for line in lines if line is not None]
    steps = np.array([line.step for line in whole], dtype=np.int64)
    return MetricColumns(
        steps=steps,
        epochs=np.array([line.epoch for line in whole], dtype=np.int64),
        elapsed_seconds=np.array([line.elapsed_seconds for line in whole], dtype=np.float64),
        values=_columns_of(steps, [line.values for line in whole]) or {},
        num_spoiled=len(raw) - len(whole),
        media=[(line.step, name, each) for line in whole for name, each in line.media.items()],
    )
