# SPDX-License-Identifier: Apache-2.0
"""Reads the Python blocks of a Markdown file as programs; all else becomes empty lines, so that lines keep their numbers."""

import ast
import re
from dataclasses import dataclass, replace

from truestep.doctor.finding import Finding, Place, Severity
from truestep.doctor.replacement import parse_source, source_lines, why_source_is_no_python
from truestep.doctor.snippets import (
    SnippetNames,
    names_of_snippet,
    programs_of_snippets,
    snippets_importing_for,
)

ENDINGS = (".md", ".markdown", ".mdx", ".qmd", ".rmd")
_FENCE = re.compile(r"(?P<indent>[ >]*)(?P<marks>`{3,}|~{3,})(?P<info>.*)$")
_INDENTED = re.compile(r"(?: {4}|\t)\s*\S")
_PYTHON = re.compile(
    r"\s*(?:\{[.{]?\s*(?:code-block\}\s*|code-cell\}\s*)?)?(?:python3?|py|ipython3?)\b", re.IGNORECASE
)
_UNMARKED = re.compile(r"\s*(?:te?xt)?\s*$", re.IGNORECASE)
_LIKE_PYTHON = re.compile(r"^\s*(?:import|from)\s+\w+|\b(?:torch|nn|F|optim)\.\w+", re.MULTILINE)
_DEFINES = re.compile(r"^\s*(?:async\s+def|def|class)\s+\w+", re.MULTILINE)
_ROOTS = re.compile(r"(?:torch|nn|F|optim)\.")


@dataclass(frozen=True)
class Markdown:
    """One program of a page, how far each of its lines was indented there, and those that it has from other programs."""

    text: str
    indents: tuple[int, ...]
    borrowed: frozenset[int] = frozenset()
    """Lines of imports that stand in another program."""
    is_joined: bool = False
    """Whether it consists of several snippets, of which the page may show one in place of the other."""
    outlined: frozenset[int] = frozenset()
    """Lines of classes that are outlines: what they read is nowhere given."""

    def place(self, place: Place) -> Place:
        """Return where in the page a place of the program is."""
        inside = place.line <= len(self.indents)
        return replace(place, column=place.column + (self.indents[place.line - 1] if inside else 0))

    def finding(self, finding: Finding) -> Finding | None:
        """Return a finding of the program as one of the page; a change of an indented block is left out.

        None where it is of a line that belongs to another program. A bug of several snippets together is a risk: nobody
        may ever run them as one. What is wrong in an outline is a question: nobody can run it.
        """
        if finding.place.line in self.borrowed:
            return None
        change = finding.replacement
        kept = change if change and not any(self.indents[each.line - 1] for each in change.edits) else None
        is_weak = self.is_joined and finding.severity is Severity.BUG
        severity = Severity.RISK if is_weak else finding.severity
        severity = Severity.QUESTION if finding.place.line in self.outlined else severity
        return replace(finding, severity=severity, place=self.place(finding.place), replacement=kept)


@dataclass(frozen=True)
class MarkdownPage:
    """The programs of a page, and the blocks that say they are Python and are not."""

    programs: tuple[Markdown, ...]
    unreadable: tuple[tuple[int, str], ...] = ()  # first line of a block, reason


def parse_markdown(raw: str) -> MarkdownPage:
    """Take the blocks of Python out of a page: those that are fenced, and those that are indented.

    A block that says no language, or `txt`, is one where it parses and imports something or calls torch; else it is prose,
    as is a block that says Python, does not parse, and neither does that nor defines anything.
    Each is a program by itself, unless it goes on with names of an earlier one.
    """
    lines = source_lines(raw)
    unreadable, snippets = [], []
    for block in _code_blocks(lines):
        first, last, indent = block.first, block.last, block.indent
        code = [
            line[indent:] if line[:indent].strip(" >\t") == "" else line.lstrip()
            for line in lines[first:last]
        ]
        joined = "\n".join(code) + "\n"
        if not block.is_marked and not _LIKE_PYTHON.search(joined):
            continue
        if reason := why_source_is_no_python(joined, "block"):
            # else it is prose: a folder's tree, what was printed
            is_meant = block.is_marked and bool(_LIKE_PYTHON.search(joined) or _DEFINES.search(joined))
            unreadable += [(first + 1, reason)] if is_meant else []
            continue
        if block.is_marked or _is_worth_reading(joined):
            snippets.append(_Snippet(first, code, indent, names_of_snippet(joined)))
    names = [each.names for each in snippets]
    programs = (_join_snippets(each, snippets, names, len(lines)) for each in programs_of_snippets(names))
    return MarkdownPage(tuple(programs), tuple(unreadable))


@dataclass(frozen=True)
class _Snippet:
    """A block that is Python: where in the page it begins, its lines, how far they were indented, and its names."""

    first: int
    code: list[str]
    indent: int
    names: SnippetNames


def _join_snippets(
    own: list[int], snippets: list[_Snippet], names: list[SnippetNames], num_lines: int
) -> Markdown:
    """Return some snippets as one program, with the imports that they take from others."""
    text, indents, borrowed = [""] * num_lines, [0] * num_lines, set()
    given = frozenset[str]().union(*(names[number].given | names[number].imported for number in own))
    outlined = {
        snippets[number].first + at + 1
        for number in own
        for each in names[number].classes
        if each.is_outline(given)
        for at in each.lines
    }
    for snippet in (snippets[number] for number in own):
        for at, line in enumerate(snippet.code, snippet.first):
            text[at], indents[at] = line, snippet.indent
    for other in (snippets[number] for number in snippets_importing_for(own, names)):
        for at in other.names.import_lines:
            text[other.first + at], indents[other.first + at] = other.code[at], other.indent
            borrowed.add(other.first + at + 1)
    return Markdown(
        "\n".join(text) + "\n",
        tuple(indents),
        frozenset(borrowed),
        is_joined=len(own) > 1,
        outlined=frozenset(outlined),
    )


@dataclass(frozen=True)
class _CodeBlock:
    """A block: its first line and the line after the last, from 0; its indentation; whether it says Python."""

    first: int
    last: int
    indent: int
    is_marked: bool


def _is_worth_reading(text: str) -> bool:
    """Tell whether Python without a mark is worth reading: it imports something, or calls torch."""
    nodes = list(ast.walk(parse_source(text)))
    if any(isinstance(each, (ast.Import, ast.ImportFrom)) for each in nodes):
        return True
    return any(isinstance(each, ast.Call) and _ROOTS.match(ast.unparse(each.func)) for each in nodes)


def _code_blocks(lines: list[str]) -> list[_CodeBlock]:
    """Return the blocks that are marked as Python, or as nothing but text, and those that are indented."""
    found = []
    at = 0
    while at < len(lines):
        opened = _FENCE.match(lines[at])
        if opened is None:
            block = _indented_block(lines, at)
            found += [block] if block is not None else []
            at = block.last if block is not None else at + 1
            continue
        end = _closing_fence_line(lines, at + 1, opened["marks"])
        is_marked = bool(_PYTHON.match(opened["info"]))
        if is_marked or _UNMARKED.match(opened["info"]):
            found.append(_CodeBlock(at + 1, end, len(opened["indent"]), is_marked))
        at = end + 1
    return found


def _indented_block(lines: list[str], at: int) -> _CodeBlock | None:
    """Return the block of code by indentation that begins here: behind an empty line, to the next line that stands further out."""
    if not _INDENTED.match(lines[at]) or (at and lines[at - 1].strip()):
        return None
    last, indents = at, []
    for number in range(at, len(lines)):
        line = lines[number]
        if not line.strip():
            continue
        if not _INDENTED.match(line) or _FENCE.match(line):
            break
        indents.append(len(line) - len(line.lstrip()))
        last = number + 1
    return _CodeBlock(at, last, min(indents), is_marked=False)


def _closing_fence_line(lines: list[str], start: int, marks: str) -> int:
    """Return the line of the fence that ends a block; the end of the page where none does."""
    for number in range(start, len(lines)):
        bare = lines[number].strip(" >")
        if bare.startswith(marks) and not bare.strip(marks[0]):
            return number
    return len(lines)
