# SPDX-License-Identifier: Apache-2.0
"""Which snippets of a page are one program: one goes on with another where it reads a name that the other gave a value."""

import ast
import symtable
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from truestep.doctor.replacement import parse_source

_LEFT_OUT = ("device", "dtype")  # what notes take for granted


@dataclass(frozen=True)
class SnippetNames:
    """The names of a snippet: those it reads without a value, those it gives one, those it imports, and its imports' lines."""

    read: frozenset[str]
    given: frozenset[str]
    imported: frozenset[str]
    import_lines: tuple[int, ...]
    """From 0, in the snippet."""
    classes: tuple["SnippetClass", ...] = ()


@dataclass(frozen=True)
class SnippetClass:
    """A class of a snippet: its lines, from 0, and the values that its methods read and nothing in the snippet gives."""

    lines: range
    lacking: frozenset[str]

    def is_outline(self, given: frozenset[str]) -> bool:
        """Tell a class that nobody can run as it stands: it reads sizes or states that no snippet of its program gives."""
        return not self.lacking <= given


def names_of_snippet(text: str) -> SnippetNames:
    """Return the names of a snippet, which is Python."""
    from pyflakes.checker import Checker  # at first use: few readings meet a page
    from pyflakes.messages import ImportStarUsage, UndefinedName

    tree = parse_source(text)
    read = {
        each.message_args[0]
        for each in Checker(tree).messages
        if isinstance(each, (ImportStarUsage, UndefinedName))
    }
    symbols = symtable.symtable(text, "<snippet>", "exec").get_symbols()
    given = {each.get_name() for each in symbols if each.is_assigned()}
    imported = {each.get_name() for each in symbols if each.is_imported()} - given
    lines = (
        number
        for statement in tree.body
        if isinstance(statement, (ast.Import, ast.ImportFrom))
        for number in range(statement.lineno - 1, statement.end_lineno or statement.lineno)
    )
    classes = (_snippet_class(each, read) for each in tree.body if isinstance(each, ast.ClassDef))
    return SnippetNames(frozenset(read), frozenset(given), frozenset(imported), tuple(lines), tuple(classes))


def _snippet_class(node: ast.ClassDef, unbound: set[str]) -> SnippetClass:
    """Return what a class lacks: no functions or objects that it uses by a call or an attribute, which are left out of notes."""
    methods = [each for each in node.body if isinstance(each, ast.FunctionDef)]
    parts = [part for each in methods for part in ast.walk(each)]
    used = {
        id(part.func if isinstance(part, ast.Call) else part.value)
        for part in parts
        if isinstance(part, (ast.Call, ast.Attribute))
    }
    values = {each.id for each in parts if isinstance(each, ast.Name) and id(each) not in used}
    lacking = {each for each in values & unbound if each.islower() and each not in _LEFT_OUT}
    return SnippetClass(range(node.lineno - 1, node.end_lineno or node.lineno), frozenset(lacking))


def programs_of_snippets(snippets: Sequence[SnippetNames]) -> list[list[int]]:
    """Return the programs, each as the numbers of its snippets, in the order of their first.

    A snippet belongs to the last one before it that gives a name it reads; what is only imported joins none.
    """
    program = list(range(len(snippets)))
    for number, snippet in enumerate(snippets):
        for name in snippet.read:
            giver = next((each for each in range(number - 1, -1, -1) if name in snippets[each].given), None)
            if giver is not None:
                old, new = program[number], program[giver]
                program = [new if each == old else each for each in program]
    return [
        [number for number, its in enumerate(program) if its == first] for first in dict.fromkeys(program)
    ]


def snippets_importing_for(program: Iterable[int], snippets: Sequence[SnippetNames]) -> list[int]:
    """Return the snippets before the program's last whose imports it lacks, the first of them first."""
    own = list(program)
    wanted = {name for number in own for name in snippets[number].read}
    return [
        number
        for number in range(max(own))
        if number not in own and not wanted.isdisjoint(snippets[number].imported)
    ]
