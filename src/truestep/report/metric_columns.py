# SPDX-License-Identifier: Apache-2.0
"""Lines of metrics as columns, thousands of lines at a time: a report over a million of them takes seconds."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from truestep.report.media import MediaFileEntry
from truestep.report.metrics import (
    MetricsLine,
    decode_metrics_line,
    is_metric_name,
    raw_metrics_blocks,
    split_metrics_lines,
)

MOST_PATTERNS = 8  # of lines read together; those of any more are read one by one

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
    for text in raw_metrics_blocks(path):
        found, left = _decode_lines_by_pattern(text)
        lines = {
            number: decode_metrics_line(line) if line.endswith(b"\n") else None
            for number, line in sorted(left.items())
        }
        whole = {number: line for number, line in lines.items() if line is not None}
        media = [(line.step, name, each) for line in whole.values() for name, each in line.media.items()]
        yield _restore_line_order(
            [*found, *_group_lines_by_names(whole)], num_spoiled=len(lines) - len(whole), media=media
        )


def _decode_lines_by_pattern(text: bytes) -> tuple[list[Alike], dict[int, bytes]]:
    """Read lines of few patterns together; return them, and by its number each line that is left, as it stands."""
    lines = (
        dict(enumerate(split_metrics_lines(text))) if not (text.isascii() and text.endswith(b"\n")) else {}
    )
    left = {number: line for number, line in lines.items() if not (line.isascii() and line.endswith(b"\n"))}
    usual = sorted(lines.keys() - left.keys())
    rows = np.array(usual, np.int64) if lines else np.arange(text.count(b"\n"))
    text = b"".join(lines[number] for number in usual) if lines else text
    found: list[Alike] = []
    for _ in range(MOST_PATTERNS if text else 0):
        end = text.find(b"\n") + 1
        pattern = MetricsLinePattern.of(text[:end])
        if pattern is None:
            left[int(rows[0])] = text[:end]
            rows, text = rows[1:], text[end:]
        elif (alike := pattern.read(text)) is None or (columns := _columns_as_arrays(alike.columns)) is None:
            break
        else:
            found.append((rows[alike.rows], pattern.names, columns))
            rows, text = rows[alike.left], alike.rest
        if not text:
            break
    return found, left | dict(zip(rows.tolist(), split_metrics_lines(text), strict=True))


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


# Most lines of a run hold the same names in the same order. What stands between their numbers is taken out of all of them together,
# so that one list of numbers is left.
KEYS = ["step", "epoch", "elapsed_seconds", "values"]
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|(-?[0-9][-+.0-9eE]*)|[^"0-9-]+')
_NUMBERS = b"-+.0123456789eE"
_MARKS = [bytes([number]) for number in range(128, 256)]  # bytes that ASCII does not have
_TO_COMMAS = bytes(range(128)) + b"," * 128


def _refuse_json_constant(word: str) -> Any:
    raise ValueError(word)


class MatchingRows(NamedTuple):
    """The columns of the lines that have a pattern, and which of all lines those are; which ones are left, and these."""

    columns: list[list[Any]]
    rows: list[int]
    left: list[int]
    rest: bytes


@dataclass(frozen=True)
class MetricsLinePattern:
    """What a line is made of besides its numbers: what stands before each of these, and behind the last."""

    names: tuple[str, ...]
    between: tuple[bytes, ...]

    @classmethod
    def of(cls, line: bytes) -> "MetricsLinePattern | None":
        """Return the pattern of a line; None where it holds anything but numbers, or not what a run writes."""
        try:
            found: dict[str, Any] = json.loads(line, parse_constant=_refuse_json_constant)
            values = found["values"]
            # with every one of them a number, a name that stands twice shows in their count
            numbers = [*(found[key] for key in KEYS[:3]), *values.values()]
            usual = list(found) == KEYS and all(type(each) in (int, float) for each in numbers)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None
        between = [b""]
        for token in _TOKEN.finditer(line):
            if token[1] is None:
                between[-1] += token[0]
            else:
                between.append(b"")
        fits = len(between) == len(values) + len(KEYS) <= len(_MARKS) and b"".join(between).isascii()
        if not (usual and fits and line.endswith(b"\n") and all(map(is_metric_name, values))):
            return None
        return cls(tuple(values), tuple(between))

    def read(self, text: bytes) -> MatchingRows | None:
        """Return the numbers of the lines that have this pattern, of which the first is one; None where that can't be told."""
        begin, *middle, end = self.between
        if not text.isascii():
            return None
        parts = dict(zip(_MARKS, [*middle, end + begin], strict=False))
        marked = text[len(begin) :] + begin  # so that each line ends in the same bytes, the last one too
        for mark, part in parts.items():
            marked = marked.replace(part, mark)
        last, num_lines = [*parts][-1], text.count(b"\n")
        between, expected = marked.translate(None, _NUMBERS), b"".join(parts)
        if between == expected * num_lines:
            return self._decode_numbers(marked[:-1], list(range(num_lines)), [], b"")
        *lines, behind = marked.split(last)
        fits = [each == expected[:-1] for each in between.split(last)[:-1]]
        if len(lines) != num_lines or behind:
            return None
        rows = [number for number, fit in enumerate(fits) if fit]
        left = [number for number, fit in enumerate(fits) if not fit]
        rest = begin + last.join([lines[number] for number in left]) + end
        for mark, part in parts.items():
            rest = rest.replace(mark, part)
        return self._decode_numbers(b",".join([lines[number] for number in rows]), rows, left, rest)

    def _decode_numbers(
        self, numbers: bytes, rows: list[int], left: list[int], rest: bytes
    ) -> MatchingRows | None:
        try:
            # JSON says what a number is, here as everywhere.
            found = json.loads(f"[{numbers.translate(_TO_COMMAS).decode()}]")
        except ValueError:
            return None
        width = len(self.between) - 1
        return MatchingRows([found[first::width] for first in range(width)], rows, left, rest)
