# SPDX-License-Identifier: Apache-2.0
"""Lines of metrics as columns, thousands of lines at a time: a report over a million of them takes seconds."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from truestep.report.media import MediaFileEntry
from truestep.report.metrics import (
    MetricsLine,
    decode_metrics_line,
    is_metric_name,
    raw_metrics_lines,
)

LINES_AT_ONCE = 1024

Steps = NDArray[np.int64]
Values = NDArray[np.float64]
Alike = tuple[Any, Sequence[str], Sequence[Any]]
"""Lines that hold the same names: which of all lines, the names, and columns of steps, epochs, seconds and each name's values."""


@dataclass(frozen=True, kw_only=True)
class MetricColumns:
    """Lines that follow one another: `values` are each metric's steps and values, where it was logged."""

    steps: Steps
    epochs: Steps
    elapsed_seconds: Values
    values: dict[str, tuple[Steps, Values]]
    num_spoiled: int = 0
    media: list[tuple[int, str, MediaFileEntry]] = field(default_factory=list)
    """Step, name and file of what was logged besides numbers."""


def read_metric_columns(path: Path) -> Iterator[MetricColumns]:
    """Yield the lines of a `metrics.jsonl` in their order; those that a crash or a disk spoiled are counted."""
    all_lines = raw_metrics_lines(path)
    while some := list(islice(all_lines, LINES_AT_ONCE)):
        found, left = _decode_lines_together(some)
        lines = {
            number: decode_metrics_line(line) if line.endswith(b"\n") else None
            for number, line in sorted(left.items())
        }
        whole = {number: line for number, line in lines.items() if line is not None}
        media = [(line.step, name, each) for line in whole.values() for name, each in line.media.items()]
        yield _restore_line_order(
            [*found, *_group_lines_by_names(whole)], num_spoiled=len(lines) - len(whole), media=media
        )


def _decode_lines_together(lines: Sequence[bytes]) -> tuple[list[Alike], dict[int, bytes]]:
    """Read the lines of numbers alone; return them, and by its number each line that is left, as it stands."""
    kinds: dict[tuple[str, ...], list[Any]] = {}
    left = dict(enumerate(lines))
    for number, raw in enumerate(lines):
        # what orjson refuses is left for json, which knows NaN and numbers beyond float64
        with suppress(ValueError, KeyError, TypeError, AttributeError):
            line = orjson.loads(raw)
            cells = (number, line["step"], line["epoch"], line["elapsed_seconds"], *line["values"].values())
            are_numbers = {*map(type, cells)} <= {int, float}
            if are_numbers and raw.endswith(b"\n") and "media" not in line:
                kinds.setdefault(tuple(line["values"]), []).append(cells)
    found: list[Alike] = []
    for names, cells_of_kind in kinds.items():
        rows, *columns = zip(*cells_of_kind, strict=True)
        arrays = _columns_as_arrays(columns) if all(map(is_metric_name, names)) else None
        if arrays is not None:
            found.append((np.array(rows), names, arrays))
            for number in rows:
                del left[number]
    return found, left


def _group_lines_by_names(lines: Mapping[int, MetricsLine]) -> Iterator[Alike]:
    """Yield lines that were read one by one, those with the same names together."""
    numbers: dict[tuple[str, ...], list[int]] = {}
    for number, line in lines.items():
        numbers.setdefault(tuple(line.values), []).append(number)
    for names, rows in numbers.items():
        some = [lines[number] for number in rows]
        cells = ((each.step, each.epoch, each.elapsed_seconds, *each.values.values()) for each in some)
        yield np.array(rows), names, [*map(np.array, zip(*cells, strict=True))]


def _columns_as_arrays(columns: Sequence[Sequence[Any]]) -> list[Any] | None:
    """Return columns as arrays; None where a number is none that a line has there: beyond int64, or negative."""
    found = [np.array(each) for each in columns]
    if any(each.dtype.kind not in ("i" if place < 2 else "if") for place, each in enumerate(found)):
        return None
    steps, epochs, elapsed, *_ = found
    return found if min(steps.min(), epochs.min()) >= 0 and np.isfinite(elapsed).all() else None


def _restore_line_order(found: Sequence[Alike], **others: Any) -> MetricColumns:
    """Put lines that were read together back into their order."""
    parts: dict[str, list[tuple[Any, ...]]] = {}
    for rows, names, columns in found:
        for name, values in zip(names, columns[3:], strict=True):
            parts.setdefault(name, []).append((rows, columns[0], values.astype(np.float64)))
    nothing = [(np.arange(0), np.arange(0), np.arange(0), np.empty(0))]
    _, steps, epochs, elapsed = _sort_columns_by_line(
        [(rows, *columns[:3]) for rows, _, columns in found] or nothing
    )
    values = sorted(
        ((name, _sort_columns_by_line(each)) for name, each in parts.items()), key=lambda item: item[1][0][0]
    )
    return MetricColumns(
        steps=steps,
        epochs=epochs,
        elapsed_seconds=elapsed.astype(np.float64),
        values={name: (its_steps, its_values) for name, (_, its_steps, its_values) in values},
        **others,
    )


def _sort_columns_by_line(parts: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Join columns, the first of which are numbers of lines, and bring them into the order of these."""
    columns = [np.concatenate(each) for each in zip(*parts, strict=True)]
    if len(parts) > 1:
        order = np.argsort(columns[0])
        columns = [column[order] for column in columns]
    return columns
