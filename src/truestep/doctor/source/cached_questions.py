# SPDX-License-Identifier: Apache-2.0
"""Questions about one file, or about all files of a program, which are answered once; who knows the order."""

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from truestep.doctor.source.names import Function, Scope

if TYPE_CHECKING:
    from truestep.doctor.source.events import Trace
    from truestep.doctor.source.module import SourceModule

Answer = TypeVar("Answer")


class ProgramFollower(Protocol):
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

    def lacks(self, module: "SourceModule", node: ast.Import | ast.ImportFrom) -> bool:
        """Tell an import of a module of this project that is not there."""

    def is_imported(self, module: "SourceModule") -> bool:
        """Tell whether another file of the program imports this one."""

    def is_of_repository(self) -> bool:
        """Tell whether all files of a repository are read."""

    def has_users_in_sight(self) -> bool:
        """Tell whether all that could use a file is read, and names it."""


class WholeProgram:
    """One file with all that it is connected with by imports, the order of what happens there, and answers about all of it."""

    def __init__(self, file: "SourceModule", follower: ProgramFollower | None) -> None:
        self.file = file
        self._follower = follower

    @cached_property
    def linked(self) -> "list[SourceModule]":
        """This file and all that it is connected with by imports: what none of them holds is nowhere in the program."""
        return self._follower.linked_with(self.file) if self._follower is not None else [self.file]

    @cached_property
    def _answer_cache(self) -> dict[object, Any]:
        """What was answered about the whole program: one table for all its files."""
        return self.linked[0].program._answer_cache if self.linked[0] is not self.file else {}

    def answer(self, question: "Callable[[list[SourceModule]], Answer]") -> Answer:
        """Return what a question about all files gives: it is answered once, however many files ask it."""
        if question not in self._answer_cache:
            self._answer_cache[question] = question(self.linked)
        answer: Answer = self._answer_cache[question]
        return answer

    def called_anywhere(self, *names: str) -> list[ast.Call]:
        """Return the calls in the program of methods of these names, or of functions whose full name is given."""
        if names not in self._answer_cache:
            methods = [call for each in self.linked for call in each.method_calls(*names)]
            self._answer_cache[names] = methods + [
                call for each in self.linked for call in each.calls(*names)
            ]
        found: list[ast.Call] = self._answer_cache[names]
        return found

    def words(self, words: frozenset[str]) -> frozenset[str]:
        """Return those of some words that stand somewhere in the program; it is searched once for them."""
        if words not in self._answer_cache:
            self._answer_cache[words] = words_in(self.linked, words)
        found: frozenset[str] = self._answer_cache[words]
        return found

    @property
    def identifiers(self) -> set[str]:
        """Every name, attribute and keyword that the program uses."""
        return self.answer(identifiers_of)

    @property
    def texts(self) -> set[str]:
        """Every text that stands written in the program."""
        return self.answer(texts_written_in)

    @property
    def attributes_read(self) -> dict[str, list[ast.Attribute]]:
        """Where the program reads an attribute of whatever object, by the attribute's name."""
        return self.answer(attributes_read_of)

    @cached_property
    def followed(self) -> "list[Trace]":
        """The traces, and those that had to be cut: what would come last in them is not known."""
        return self._follower.traces_of(self.file) if self._follower is not None else []

    def traces_through(self, node: ast.AST) -> "Iterator[Trace]":
        """Yield what happens on each way that comes by a node, from whatever file."""
        found = self._follower.traces_through(node) if self._follower is not None else ()
        return (each for each in found if each.complete)

    def training_loops(self) -> set[ast.AST]:
        """Return the loops of the program in which an optimizer steps, be it in a function that is called."""
        return self._follower.training_loops() if self._follower is not None else set()

    def entered_by(self, call: ast.AST) -> set[Function]:
        """Return the functions that a call was followed into."""
        return self._follower.entered_by(call) if self._follower is not None else set()

    def entered_from(self, function: Function) -> set[ast.AST]:
        """Return the calls from which a function was followed."""
        return self._follower.entered_from(function) if self._follower is not None else set()

    def lacks(self, node: ast.Import | ast.ImportFrom) -> bool:
        """Tell an import of a module of this project that is not there."""
        return self._follower is not None and self._follower.lacks(self.file, node)

    def is_imported(self) -> bool:
        """Tell whether another file of the program imports this one."""
        return self._follower is not None and self._follower.is_imported(self.file)

    def is_of_repository(self) -> bool:
        """Tell whether all files of the repository are read, so that its trainings are in sight."""
        return self._follower is not None and self._follower.is_of_repository()

    def has_users_in_sight(self) -> bool:
        """Tell whether all that could use this file is read, and would name it: none is found by a text."""
        return self._follower is not None and self._follower.has_users_in_sight()

    def home(self, node: ast.AST) -> "SourceModule":
        """Return the file of the program that a node stands in."""
        is_known = self._follower is not None and node in self.file.index.scope_of
        return self._follower.module_of(node) if is_known and self._follower else self.file


def identifiers_of(files: "list[SourceModule]") -> set[str]:
    """Return every name, attribute and keyword."""
    return set().union(*(own_identifiers(each) for each in files))


def own_identifiers(file: "SourceModule") -> set[str]:
    """Return every name, attribute and keyword that a file uses; imports alone don't count."""
    names = {node.id for node in file.all(ast.Name)} | {node.attr for node in file.all(ast.Attribute)}
    return names | {node.arg for node in file.all(ast.keyword) if node.arg}


def texts_written_in(files: "list[SourceModule]") -> set[str]:
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


def reads_by_name(
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


def nodes_by_scope(nodes: Iterable[ast.AST], scopes: Mapping[ast.AST, Scope]) -> dict[Scope, list[ast.AST]]:
    """Return nodes by the function, or the file, right in which they stand."""
    found: dict[Scope, list[ast.AST]] = {}
    for node in nodes:
        found.setdefault(scopes[node], []).append(node)
    return found


def method_calls_by_name(calls: list[ast.Call]) -> dict[str, list[ast.Call]]:
    """Return the calls of methods, by the method's name."""
    found: dict[str, list[ast.Call]] = {}
    for call in calls:
        if isinstance(call.func, ast.Attribute):
            found.setdefault(call.func.attr, []).append(call)
    return found


def imported_names(file: "SourceModule") -> set[str]:
    """Return the full names of what a file imports from elsewhere."""
    found = {alias.name for node in file.all(ast.Import) for alias in node.names}
    names = [(node.module, alias.name) for node in file.all(ast.ImportFrom) for alias in node.names]
    return found | {f"{home}.{name}" for home, name in names if home}
