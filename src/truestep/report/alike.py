# SPDX-License-Identifier: Apache-2.0
"""Lines of metrics that are alike but for their numbers, read all at once.

Most lines of a run hold the same names in the same order. What stands between their numbers is taken out of all of them
together, so that one list of numbers is left.
"""

import json
import re
from dataclasses import dataclass
from typing import Any, NamedTuple

from truestep.report.metrics import is_metric_name

KEYS = ["step", "epoch", "elapsed_seconds", "values"]
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|(-?[0-9][-+.0-9eE]*)|[^"0-9-]+')
_NUMBERS = b"-+.0123456789eE"
_MARKS = [bytes([number]) for number in range(128, 256)]  # bytes that ASCII does not have
_TO_COMMAS = bytes(range(128)) + b"," * 128


def _no_number(word: str) -> Any:
    raise ValueError(word)


class AlikeRows(NamedTuple):
    """The columns of the lines that have a pattern, and which of all lines those are; which ones are left, and these."""

    columns: list[list[Any]]
    rows: list[int]
    left: list[int]
    rest: bytes


@dataclass(frozen=True)
class LinePattern:
    """What a line is made of besides its numbers: what stands before each of these, and behind the last."""

    names: tuple[str, ...]
    between: tuple[bytes, ...]

    @classmethod
    def of(cls, line: bytes) -> "LinePattern | None":
        """Return the pattern of a line; None where it holds anything but numbers, or not what a run writes."""
        try:
            found: dict[str, Any] = json.loads(line, parse_constant=_no_number)
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

    def read(self, text: bytes) -> AlikeRows | None:
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
            return self._of(marked[:-1], list(range(num_lines)), [], b"")
        *lines, behind = marked.split(last)
        fits = [each == expected[:-1] for each in between.split(last)[:-1]]
        if len(lines) != num_lines or behind:
            return None
        rows = [number for number, fit in enumerate(fits) if fit]
        left = [number for number, fit in enumerate(fits) if not fit]
        rest = begin + last.join([lines[number] for number in left]) + end
        for mark, part in parts.items():
            rest = rest.replace(mark, part)
        return self._of(b",".join([lines[number] for number in rows]), rows, left, rest)

    def _of(self, numbers: bytes, rows: list[int], left: list[int], rest: bytes) -> AlikeRows | None:
        try:
            # JSON says what a number is, here as everywhere.
            found = json.loads(f"[{numbers.translate(_TO_COMMAS).decode()}]")
        except ValueError:
            return None
        width = len(self.between) - 1
        return AlikeRows([found[first::width] for first in range(width)], rows, left, rest)
