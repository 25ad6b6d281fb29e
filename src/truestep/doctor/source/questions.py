# SPDX-License-Identifier: Apache-2.0
"""Questions about one file, or all files of a program, each answered once (`SourceModule.of_program`); who knows the order."""

import ast
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

from truestep.doctor.source.names import Function, Scope

if TYPE_CHECKING:
    from truestep.doctor.source.events import Trace
    from truestep.doctor.source.module import SourceModule


class Follower(Protocol):
    """Knows in which order things happen in the whole program."""

    def traces_of(self, module: "SourceModule") -> "list[Trace]":
        """Return the traces that start in a file."""

    def traces_through(self, node: ast.AST) -> "Iterator[Trace]":
        """Yield the traces that come by a node, in whatever file they start."""

    def training_loops(self) -> set[ast.AST]:
        """Return the loops of the program in which an optimizer steps."""

    def linked_with(self, module: "SourceModule") -> "list[SourceModule]":
        """Return a file and those that imports connect it with, whichever imports which."""

    def module_of(self, node: ast.AST) -> "SourceModule":
        """Return the file that a node stands in."""

    def entered_by(self, call: ast.AST) -> "set[Function]":
        """Return the functions that a call was followed into."""

    def entered_from(self, function: Function) -> "set[ast.AST]":
        """Return the calls from which a function was followed."""


def identifiers_of(files: "list[SourceModule]") -> set[str]:
    """Return every name, attribute and keyword."""
    return set().union(*(each.own_identifiers for each in files))


def texts_of(files: "list[SourceModule]") -> set[str]:
    """Return every text that stands written."""
    constants = (node.value for each in files for node in each.all(ast.Constant))
    return {value for value in constants if isinstance(value, str)}


def attributes_read_of(files: "list[SourceModule]") -> dict[str, list[ast.Attribute]]:
    """Return where attributes are read, by their names."""
    found: dict[str, list[ast.Attribute]] = {}
    for file in files:
        for node in file.all(ast.Attribute):
            if isinstance(node.ctx, ast.Load):
                found.setdefault(node.attr, []).append(node)
    return found


def mentions_torch(files: "list[SourceModule]") -> bool:
    """Tell whether any of the files names torch: a helper beside the script need not."""
    return any("torch" in each.text for each in files)


def words_in(files: "list[SourceModule]", words: frozenset[str]) -> frozenset[str]:
    """Return those of some words that stand somewhere in the texts; what is written often is searched once."""
    written = "\n".join(set().union(*(each.text.split() for each in files)))
    return frozenset(
        word
        for word in words
        if word in written or (" " in word and any(word in each.text for each in files))
    )


def reads_in(
    names: list[ast.Name], attributes: list[ast.Attribute]
) -> dict[str, list[ast.Name | ast.Attribute]]:
    """Return where names and attributes are read, by their last part, in the order of the file."""
    found: dict[str, list[ast.Name | ast.Attribute]] = {}
    for name in names:
        if isinstance(name.ctx, ast.Load):
            found.setdefault(name.id.rpartition(".")[2], []).append(name)
    for node in attributes:
        if isinstance(node.ctx, ast.Load):
            found.setdefault(node.attr, []).append(node)
    for each in found.values():
        each.sort(key=lambda node: (node.lineno, node.col_offset))
    return found


def by_scope(nodes: Iterable[ast.AST], scopes: Mapping[ast.AST, Scope]) -> dict[Scope, list[ast.AST]]:
    """Return nodes by the function, or the file, right in which they stand."""
    found: dict[Scope, list[ast.AST]] = {}
    for node in nodes:
        found.setdefault(scopes[node], []).append(node)
    return found


def methods_in(calls: list[ast.Call]) -> dict[str, list[ast.Call]]:
    """Return the calls of methods, by the method's name."""
    found: dict[str, list[ast.Call]] = {}
    for call in calls:
        if isinstance(call.func, ast.Attribute):
            found.setdefault(call.func.attr, []).append(call)
    return found


def imported_by(plain: list[ast.Import], named: list[ast.ImportFrom]) -> set[str]:
    """Return the full names of what imports bring."""
    found = {alias.name for node in plain for alias in node.names}
    names = [(node.module, alias.name) for node in named for alias in node.names]
    return found | {f"{home}.{name}" for home, name in names if home}
