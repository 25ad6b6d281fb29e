# SPDX-License-Identifier: Apache-2.0
"""Reads the Python blocks of a Markdown file as one program; prose becomes empty lines, so that lines keep their numbers."""

import re
from dataclasses import dataclass, replace

from truestep.doctor.finding import Finding, Place
from truestep.doctor.replacement import source_lines, why_source_is_no_python

ENDINGS = (".md", ".markdown", ".mdx", ".qmd", ".rmd")
_FENCE = re.compile(r"(?P<indent>(?:[ ]*(?:>[ ]?)?)*)(?P<marks>`{3,}|~{3,})(?P<info>.*)$")
_PYTHON = re.compile(
    r"\s*(?:\{[.{]?\s*(?:code-block\}\s*|code-cell\}\s*)?)?(?:python3?|py|ipython3?)\b", re.IGNORECASE
)


@dataclass(frozen=True)
class Markdown:
    """The program, how far each of its lines was indented in the page, and the blocks that are no Python."""

    text: str
    indents: tuple[int, ...]
    unreadable: tuple[tuple[int, str], ...] = ()  # first line of a block, reason

    def place(self, place: Place) -> Place:
        """Return where in the page a place of the program is."""
        inside = place.line <= len(self.indents)
        return replace(place, column=place.column + (self.indents[place.line - 1] if inside else 0))

    def finding(self, finding: Finding) -> Finding:
        """Return a finding of the program as one of the page; a change of an indented block is left out."""
        change = finding.replacement
        kept = change if change and not any(self.indents[each.line - 1] for each in change.edits) else None
        return replace(finding, place=self.place(finding.place), replacement=kept)


def parse_markdown(raw: str) -> Markdown:
    """Take the fenced blocks marked as Python out of a page, one after another as the cells of a notebook."""
    lines = source_lines(raw)
    text, indents = [""] * len(lines), [0] * len(lines)
    unreadable = []
    for first, last, indent in _blocks(lines):
        code = [
            line[indent:] if line[:indent].strip(" >") == "" else line.lstrip() for line in lines[first:last]
        ]
        if reason := why_source_is_no_python("\n".join(code) + "\n", "block"):
            unreadable.append((first + 1, reason))
            continue
        text[first:last] = code
        indents[first:last] = [indent] * len(code)
    return Markdown("\n".join(text) + "\n", tuple(indents), tuple(unreadable))


def _blocks(lines: list[str]) -> list[tuple[int, int, int]]:
    """Return the first line, the line after the last and the indentation of each Python block, counted from 0."""
    found = []
    at = 0
    while at < len(lines):
        opened = _FENCE.match(lines[at])
        if opened is None:
            at += 1
            continue
        end = _closed(lines, at + 1, opened["marks"])
        if _PYTHON.match(opened["info"]):
            found.append((at + 1, end, len(opened["indent"])))
        at = end + 1
    return found


def _closed(lines: list[str], start: int, marks: str) -> int:
    """Return the line of the fence that ends a block; the end of the page where none does."""
    for number in range(start, len(lines)):
        bare = lines[number].strip(" >")
        if bare.startswith(marks) and not bare.strip(marks[0]):
            return number
    return len(lines)
