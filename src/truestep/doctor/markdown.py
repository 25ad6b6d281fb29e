# SPDX-License-Identifier: Apache-2.0
"""Reads the Python blocks of a Markdown file as one program; prose becomes empty lines, so that lines keep their numbers."""

import ast
import re
from dataclasses import dataclass, replace

from truestep.doctor.finding import Finding, Place
from truestep.doctor.replacement import parse_source, source_lines, why_source_is_no_python

ENDINGS = (".md", ".markdown", ".mdx", ".qmd", ".rmd")
_FENCE = re.compile(r"(?P<indent>(?:[ ]*(?:>[ ]?)?)*)(?P<marks>`{3,}|~{3,})(?P<info>.*)$")
_PYTHON = re.compile(
    r"\s*(?:\{[.{]?\s*(?:code-block\}\s*|code-cell\}\s*)?)?(?:python3?|py|ipython3?)\b", re.IGNORECASE
)
_UNMARKED = re.compile(r"\s*(?:te?xt)?\s*$", re.IGNORECASE)
_LIKE_PYTHON = re.compile(r"^\s*(?:import|from)\s+\w+|\b(?:torch|nn|F|optim)\.\w+", re.MULTILINE)
_ROOTS = re.compile(r"(?:torch|nn|F|optim)\.")


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
    """Take the fenced blocks of Python out of a page, one after another as the cells of a notebook.

    A block that says no language, or `txt`, is one where it parses and imports something or calls torch; else it is prose.
    """
    lines = source_lines(raw)
    text, indents = [""] * len(lines), [0] * len(lines)
    unreadable = []
    for block in _blocks(lines):
        first, last, indent = block.first, block.last, block.indent
        code = [
            line[indent:] if line[:indent].strip(" >") == "" else line.lstrip() for line in lines[first:last]
        ]
        joined = "\n".join(code) + "\n"
        if not block.is_marked and not _LIKE_PYTHON.search(joined):
            continue
        if reason := why_source_is_no_python(joined, "block"):
            unreadable += [(first + 1, reason)] if block.is_marked else []  # else it is prose
            continue
        if not block.is_marked and not _trains(joined):
            continue
        text[first:last] = code
        indents[first:last] = [indent] * len(code)
    return Markdown("\n".join(text) + "\n", tuple(indents), tuple(unreadable))


@dataclass(frozen=True)
class _Block:
    """A fenced block: its first line and the line after the last, from 0; its indentation; whether it says Python."""

    first: int
    last: int
    indent: int
    is_marked: bool


def _trains(text: str) -> bool:
    """Tell whether Python without a mark is worth reading: it imports something, or calls torch."""
    nodes = list(ast.walk(parse_source(text)))
    if any(isinstance(each, ast.Import | ast.ImportFrom) for each in nodes):
        return True
    return any(isinstance(each, ast.Call) and _ROOTS.match(ast.unparse(each.func)) for each in nodes)


def _blocks(lines: list[str]) -> list[_Block]:
    """Return the blocks that are marked as Python, or as nothing but text."""
    found = []
    at = 0
    while at < len(lines):
        opened = _FENCE.match(lines[at])
        if opened is None:
            at += 1
            continue
        end = _closed(lines, at + 1, opened["marks"])
        is_marked = bool(_PYTHON.match(opened["info"]))
        if is_marked or _UNMARKED.match(opened["info"]):
            found.append(_Block(at + 1, end, len(opened["indent"]), is_marked))
        at = end + 1
    return found


def _closed(lines: list[str], start: int, marks: str) -> int:
    """Return the line of the fence that ends a block; the end of the page where none does."""
    for number in range(start, len(lines)):
        bare = lines[number].strip(" >")
        if bare.startswith(marks) and not bare.strip(marks[0]):
            return number
    return len(lines)
