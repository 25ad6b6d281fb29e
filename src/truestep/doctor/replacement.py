# SPDX-License-Identifier: Apache-2.0
"""A finding's fix as a change of the file: what to replace by what, and the diff that shows it."""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any


@dataclass(frozen=True, order=True)
class Edit:
    """Puts `text` in the place of a stretch of the file; lines and columns (of characters) count from 1."""

    line: int
    column: int
    end_line: int
    end_column: int  # the first column that stays
    text: str

    def to_dict(self) -> dict[str, Any]:
        """Return what `--output json` prints of it."""
        return {
            "start_line": self.line,
            "start_column": self.column,
            "end_line": self.end_line,
            "end_column": self.end_column,
            "text": self.text,
        }


@dataclass(frozen=True)
class Replacement:
    """The edits that mend one finding, and the lines that they take away and add."""

    edits: tuple[Edit, ...]
    diff: tuple[str, ...]  # "- old line", "+ new line", "  neighbouring line"

    def to_dict(self) -> dict[str, Any]:
        """Return what `--output json` prints of it."""
        return {"edits": [each.to_dict() for each in self.edits], "diff": list(self.diff)}


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """Return the text with the edits made; one that overlaps an earlier one is left out."""
    lines = text.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    taken: list[tuple[int, int, str]] = []
    for edit in sorted(edits):
        start = starts[edit.line - 1] + edit.column - 1
        end = starts[edit.end_line - 1] + edit.end_column - 1
        if not taken or start >= taken[-1][1]:
            taken.append((start, end, edit.text))
    for start, end, new in reversed(taken):
        text = text[:start] + new + text[end:]
    return text


def replacement(text: str, edits: Iterable[Edit]) -> Replacement | None:
    """Return the replacement that these edits of a text are; None if they change nothing, or one another."""
    edits = tuple(sorted(edits))
    if any((a.end_line, a.end_column) > (b.line, b.column) for a, b in pairwise(edits)):
        return None
    after = apply_edits(text, edits).splitlines()
    diff = _diff(text.splitlines(), after, 0)
    if all(line[0] == "+" for line in diff):
        diff = _diff(text.splitlines(), after, 1)  # what is only added is shown with its neighbours
    return Replacement(edits, diff) if diff else None


def _diff(before: list[str], after: list[str], context: int) -> tuple[str, ...]:
    lines = list(difflib.unified_diff(before, after, lineterm="", n=context))[2:]
    return tuple(f"{line[0]} {line[1:]}" for line in lines if not line.startswith("@@"))
