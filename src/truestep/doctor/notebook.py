# SPDX-License-Identifier: Apache-2.0
"""Reads the code cells of a notebook as one Python text, and finds its lines again in their cells."""

import bisect
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import PurePath

from truestep.doctor.finding import Finding, Place
from truestep.doctor.replacement import (
    Replacement,
    SourceEdit,
    replacement,
    source_lines,
    why_source_is_no_python,
)

# Cells of another language, or that IPython keeps from Python; of these the body is Python after all.
_PYTHON_CELLS = re.compile(r"%%(time|timeit|capture|prun|python3?)\b")
_MAGIC = re.compile(r"(\s*)[%!?]")
_TIMED = re.compile(r"(\s*)%(?:time|prun)\s+(?!-)(.+)")
# What these bring, or a cell that can't be read, is not known: as after a star import.
_BRINGS_NAMES = re.compile(r"(\s*)%(?:run|pylab|store|load|loadpy|macro)\b")
_NAMES_BROUGHT = "from IPython import *"
_HELP = re.compile(r"(\s*)[\w.]+\?{1,2}\s*$")
_ASSIGNED = re.compile(r"(\s*[\w.]+\s*=\s*)[%!]")
# Where editors cut a script into cells, and where a notebook that was written out as a script had them.
_CELL_MARK = re.compile(r"#\s?(?:%%|In\s?\[[\d ]*\]|<codecell>|COMMAND -{5,})")
_LINE_TOLD = re.compile(r"(?P<before>\bline |:)(?P<line>\d+)\b")


@dataclass(frozen=True)
class NotebookText:
    """The joined text, for each code cell its number (from 1, of all cells) and its first line, and what is left out."""

    text: str
    numbers: tuple[int, ...]
    starts: tuple[int, ...]
    unreadable: tuple[tuple[int, str], ...] = ()  # cells that are no Python: number, reason

    @property
    def cells(self) -> Iterator[tuple[int, str]]:
        """Yield the number and the Python of each code cell."""
        lines = source_lines(self.text)
        for number, (first, after) in zip(
            self.numbers, pairwise([*self.starts, len(lines) + 1]), strict=True
        ):
            yield number, _join_lines(lines[first - 1 : after - 1])

    def place(self, place: Place) -> Place:
        """Return the cell, and the line in it, of a line of the joined text."""
        cell = bisect.bisect_right(self.starts, place.line) - 1
        return replace(place, cell=self.numbers[cell], line=place.line - self.starts[cell] + 1)

    def joined_place(self, place: Place) -> Place:
        """Return the line of the joined text that a line of a cell is."""
        first = self.starts[self.numbers.index(place.cell)]
        return replace(place, cell=0, line=first + place.line - 1)

    def finding(self, finding: Finding) -> Finding:
        """Return a finding of the joined text as one of its cell."""
        path = finding.place.path
        evidence = {
            name: self._with_cell_lines(value, path) if isinstance(value, str) else value
            for name, value in finding.evidence.items()
        }
        return replace(
            finding,
            place=self.place(finding.place),
            message=self._with_cell_lines(finding.message, path),
            evidence=evidence,
            replacement=self._replacement_in_cell(finding.replacement),
        )

    def _with_cell_lines(self, text: str, path: str) -> str:
        """Return a text of a finding with the lines that it names, "line 7" and "FILE:7", as those of their cells."""

        def cell_reference(found: re.Match[str]) -> str:
            if found["before"] == ":" and not text[: found.start()].endswith(PurePath(path).name):
                return found[0]  # another file's
            place = self.place(Place(path, int(found["line"])))
            if found["before"] == ":":
                return f":{place.cell}:{place.line}"
            return f"line {place.line} of cell {place.cell}"

        return _LINE_TOLD.sub(cell_reference, text)

    def _replacement_in_cell(self, change: Replacement | None) -> Replacement | None:
        """Edits that stay within one cell count from its beginning; others are left out."""
        if change is None:
            return None
        cells = {bisect.bisect_right(self.starts, each.line) - 1 for each in change.edits}
        cells |= {bisect.bisect_right(self.starts, each.end_line) - 1 for each in change.edits}
        if len(cells) != 1:
            return None
        cell = cells.pop()
        first, after = self.starts[cell] - 1, [*self.starts, len(self.text) + 2][cell + 1] - 1
        own = _join_lines(
            source_lines(self.text)[first:after]
        )  # the lines beside a change are its cell's, too
        return replacement(own, (_shift_edit(each, -first) for each in change.edits))


def _shift_edit(edit: SourceEdit, lines: int) -> SourceEdit:
    return replace(edit, line=edit.line + lines, end_line=edit.end_line + lines)


def parse_notebook(raw: str) -> NotebookText:
    """Join the code cells of a notebook (nbformat 4); magics and shell lines become `pass`.

    Raises:
        ValueError: no JSON, no notebook, or one of another language.
    """
    try:
        document = json.loads(raw)
    except json.JSONDecodeError as error:
        raise ValueError(f"it is no JSON from line {error.lineno} on ({error.msg})") from None
    except RecursionError:
        raise ValueError("no notebook: its JSON is nested too deeply") from None
    if not isinstance(document, dict) or not isinstance(document.get("cells"), list):
        raise ValueError("no cells: not a notebook of format 4")
    if (language := _notebook_language(document)) != "python":
        raise ValueError(f"a notebook of {language}, not of Python")
    lines: list[str] = []
    numbers, starts, unreadable = [], [], []
    for number, cell in enumerate(document["cells"], 1):
        if isinstance(cell, dict) and cell.get("cell_type") == "code":
            numbers.append(number)
            starts.append(len(lines) + 1)
            code = _cell_python_lines(cell_source(cell))
            if reason := why_source_is_no_python(_join_lines(code), "cell"):
                unreadable.append((number, reason))
                code = [_NAMES_BROUGHT, *("" for _ in code[1:])]
            lines += code
    return NotebookText(
        "\n".join(lines) + "\n", tuple(numbers) or (1,), tuple(starts) or (1,), tuple(unreadable)
    )


def cell_marker_lines(text: str) -> list[int]:
    """Return the lines by which a script is cut into cells; none where it has no such marks."""
    return [number for number, line in enumerate(source_lines(text), 1) if _CELL_MARK.match(line)]


def _notebook_language(document: dict[str, object]) -> str:
    metadata = document.get("metadata")
    for key, name in (("kernelspec", "language"), ("language_info", "name")):
        part = metadata.get(key) if isinstance(metadata, dict) else None
        if isinstance(part, dict) and isinstance(part.get(name), str):
            return str(part[name]).lower()
    return "python"


def cell_source(cell: dict[str, object]) -> str:
    """Return the text of a cell, which a notebook may hold as one string or as its lines."""
    source = cell.get("source", "")
    return "".join(map(str, source)) if isinstance(source, list) else str(source or "")


def _join_lines(code: list[str]) -> str:
    return "\n".join(code) + "\n"


def is_python_cell(source: str) -> bool:
    """Tell whether a cell is Python, its magics and shell lines left aside."""
    return why_source_is_no_python(_join_lines(_cell_python_lines(source)), "cell") is None


def _cell_python_lines(source: str) -> list[str]:
    lines = source_lines(source) or [""]
    first = next((line for line in lines if line.strip()), "")
    if first.startswith("%%") and not _PYTHON_CELLS.match(first):
        return [_NAMES_BROUGHT if first.startswith("%%cython") else "", *("" for _ in lines[1:])]
    found: list[str] = []
    goes_on = False  # a shell line that ends with a backslash
    for line in lines:
        made = "" if goes_on else _without_magic(line)
        goes_on = line.endswith("\\") and (goes_on or made != line)
        found.append(made)
    return found


def _without_magic(line: str) -> str:
    if match := _TIMED.match(line):
        return f"{match[1]}{match[2]}"
    if match := _BRINGS_NAMES.match(line):
        return f"{match[1]}{_NAMES_BROUGHT}"
    if match := _MAGIC.match(line):
        return f"{match[1]}pass"
    if match := _ASSIGNED.match(line):
        return f"{match[1]}None"
    if match := _HELP.match(line):
        return f"{match[1]}pass"
    return line
