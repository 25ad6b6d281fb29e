# SPDX-License-Identifier: Apache-2.0
"""A finding's fix as a change of the file: what to replace by what, and the diff that shows it."""

import ast
import difflib
import re
import warnings
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from truestep.doctor.newer_syntax import bind_type_parameters, rewrite_newer_python

_END = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True, order=True)
class SourceEdit:
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

    edits: tuple[SourceEdit, ...]
    diff: tuple[str, ...]  # "- old line", "+ new line", "  neighbouring line", "  …"

    def to_dict(self) -> dict[str, Any]:
        """Return what `--output json` prints of it."""
        return {"edits": [each.to_dict() for each in self.edits], "diff": list(self.diff)}


def parse_source(text: str, path: str = "<text>") -> ast.Module:
    """Parse a text, of an earlier or a later Python too; its warnings are its author's to see.

    Raises:
        SyntaxError, ValueError: no Python, or one that is nested too deeply.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(text, filename=path)
        except SyntaxError:
            for other in (rewrite_newer_python(text), rewrite_old_python(text)):
                if other != text:
                    with suppress(SyntaxError, RecursionError, MemoryError):
                        tree = ast.parse(other, filename=path)
                        bind_type_parameters(tree, text)
                        return tree
            raise
        except (RecursionError, MemoryError) as error:
            raise SyntaxError(f"nested too deeply for Python's parser ({type(error).__name__})") from None


def why_source_is_no_python(text: str, what: str) -> str | None:
    """Return why a text, named by what it is, is no Python; None where it is."""
    try:
        parse_source(text, what)
    except (SyntaxError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def source_lines(text: str) -> list[str]:
    """Return the lines that Python counts; `splitlines` breaks at form feeds and other marks, too."""
    lines = _END.split(text)
    return lines[:-1] if lines[-1] == "" else lines


def apply_source_edits(text: str, edits: Iterable[SourceEdit]) -> str:
    """Return the text with the edits made; one that overlaps an earlier one is left out."""
    starts = [0, *(found.end() for found in _END.finditer(text)), len(text)]
    taken: list[tuple[int, int, str]] = []
    for edit in sorted(edits):
        start = starts[edit.line - 1] + edit.column - 1
        end = starts[edit.end_line - 1] + edit.end_column - 1
        if not taken or start >= taken[-1][1]:
            taken.append((start, end, edit.text))
    for start, end, new in reversed(taken):
        text = text[:start] + new + text[end:]
    return text


def replacement(text: str, edits: Iterable[SourceEdit]) -> Replacement | None:
    """Return the replacement that these edits of a text are; None if they change nothing, or one another."""
    edits = tuple(sorted(edits))
    if any((a.end_line, a.end_column) > (b.line, b.column) for a, b in pairwise(edits)):
        return None
    before, after = _lines_around_edits(
        edits, source_lines(text), source_lines(apply_source_edits(text, edits))
    )
    diff = _diff_lines(before, after, 0)
    if all(line[0] == "+" for line in diff) or _has_only_moved_lines(diff):
        diff = _diff_lines(before, after, 1)  # what is only added or moved is shown with its neighbours
    return Replacement(edits, diff) if diff else None


def _lines_around_edits(
    edits: tuple[SourceEdit, ...], before: list[str], after: list[str]
) -> tuple[list[str], list[str]]:
    """Return the lines of edits and their neighbours, as they were and as they are then: all the others are alike."""
    if not edits:
        return [], []
    start = max(edits[0].line - 2, 0)
    num_behind = max(len(before) - max(each.end_line for each in edits) - 1, 0)
    return before[start : len(before) - num_behind], after[start : len(after) - num_behind]


def _has_only_moved_lines(diff: tuple[str, ...]) -> bool:
    """Tell whether the same lines go and come: without their neighbours that says nothing."""
    code = [(line[0], line[1:].partition("  #")[0].strip()) for line in diff]  # a comment stays behind
    gone, come = (sorted(text for sign, text in code if sign == wanted) for wanted in "-+")
    return gone == come


def _diff_lines(before: list[str], after: list[str], context: int) -> tuple[str, ...]:
    """Return the changed lines; between those that lie apart stands the context line "  …". No empty line is one's neighbour."""
    lines = list(difflib.unified_diff(before, after, lineterm="", n=context))[2:]
    apart = [index for index, line in enumerate(lines) if line.startswith("@@")]
    between = apart[1:] if context else []
    return tuple(
        "  …" if index in between else f"{line[0]} {line[1:]}"
        for index, line in enumerate(lines)
        if index in between or (index not in apart and line.strip())
    )


_REWRITTEN = [
    (
        re.compile(r"((?:^|[:;])[ \t]*)print[ \t]+(?=[^\s=(.,)\]:;#])", re.MULTILINE),
        r"\1print,",
    ),  # print "loss", loss
    (re.compile(r"((?:^|[:;])[ \t]*)print[ \t]+(?=\()", re.MULTILINE), r"\1print,"),  # print ("loss"), loss
    (re.compile(r"^([ \t]*except[ \t]+[^:#]+?)[ \t]*,[ \t]*(\w+)[ \t]*:", re.MULTILINE), r"\1 as \2:"),
    (re.compile(r"(\braise[ \t]+[\w.]+)[ \t]*,"), r"\1;"),
    (re.compile(r"\basync\b(?![ \t]+(?:def|for|with)\b)"), "async_"),  # x.cuda(async=True)
    (re.compile(r"(?<![\w.])0+([1-7][0-7]*)(?![\w.])"), r"0o\1"),
    (re.compile(r"(?<![\w.])(\d+)[lL]\b"), r"\1"),
    (re.compile(r"<>"), "!="),
    (re.compile(r"\bur(?=[\"'])"), "r"),
]
_INDENT = re.compile(r"^[ \t]*\t[ \t]*", re.MULTILINE)


def rewrite_old_python(text: str) -> str:
    """Return a text that Python can't parse with the statements of Python 2, and `async` as a name, rewritten."""
    for pattern, new in _REWRITTEN:
        text = pattern.sub(new, text)
    return _INDENT.sub(lambda found: found[0].expandtabs(8), text)
