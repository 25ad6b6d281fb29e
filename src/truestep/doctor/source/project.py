# SPDX-License-Identifier: Apache-2.0
"""The files that are read together: those that are named, and the local ones that they reach by their imports."""

import ast
import os
from collections.abc import Iterable, Iterator

from truestep.core.os_specific import relative_path
from truestep.doctor.source.entries import ProgramEntries
from truestep.doctor.source.events import Trace
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Function, Index
from truestep.doctor.source.path_of_import import ImportPlaces, SourceDisk
from truestep.doctor.source.resolving import Resolver


class SourceProject:
    """Reads files once, links their imports, and follows the program from each place where it is entered."""

    def __init__(self, files: SourceDisk | None = None, places: ImportPlaces | None = None) -> None:
        self._places = places or ImportPlaces(files or SourceDisk())
        self.files = self._places.files
        self.index = Index()
        self.resolver = Resolver(self.index, self._find_imported_tree)
        self.modules: dict[str, SourceModule] = {}  # by full path
        self._trees: dict[ast.Module, str] = {}
        self._linked: set[str] = set()
        self._neighbours: dict[str, set[str]] = {}
        self._imported: set[str] = set()
        self._components: dict[str, list[SourceModule]] = {}
        self._entries: ProgramEntries | None = None

    def add(self, text: str, path: str, part: int = 0) -> SourceModule:
        """Parse one file that is to be read, or one of several programs in it.

        Raises:
            SyntaxError, ValueError: Python can't parse it.
        """
        module = SourceModule(text, path, self.resolver, self)
        full = os.path.abspath(path) + (f"#{part}" if part else "")
        self.modules[full] = module
        self._trees[module.tree] = full
        return module

    def link(self) -> None:
        """Parse what the files reach by their imports, and by the imports of those."""
        waiting = [full for full in self.modules if full not in self._linked]
        while waiting:
            full = waiting.pop()
            self._linked.add(full)
            for found in self._paths_reached_by_imports(self.modules[full]):
                self._neighbours.setdefault(full, set()).add(found)
                self._neighbours.setdefault(found, set()).add(full)
                self._imported.add(found)
                if found not in self.modules and self._parse_imported_file(found, self.modules[full].path):
                    waiting.append(found)

    def _paths_reached_by_imports(self, module: SourceModule) -> Iterator[str]:
        nodes: list[ast.Import | ast.ImportFrom] = [*module.all(ast.Import), *module.all(ast.ImportFrom)]
        for node in nodes:
            for name, dots in _names_in_import(node):
                yield from self._places.reached(self._trees[module.tree], name, dots)

    def _parse_imported_file(self, full: str, importer: str) -> bool:
        shown = full if os.path.isabs(importer) else relative_path(os.curdir, full)
        try:
            self.add(self.files.text(full), shown)
        except (OSError, SyntaxError, ValueError):
            return False  # what it would say is not known; the file itself is named when it is read
        return True

    def forget(self) -> None:
        """Let go of everything: what holds itself in circles would wait for the garbage collector, which takes longer."""
        traces = self._entries.followed() if self._entries is not None else []
        contexts = [trace.contexts for trace in traces if trace.contexts is not None]
        own = [self.resolver.names, self.resolver, self.index, self]
        for each in (*traces, *contexts, *self.modules.values(), *own):
            each.__dict__.clear()

    # ── imports ───────────────────────────────────────────────────────────────────────────────

    def _find_imported_tree(self, importer: ast.Module, name: str, dots: int) -> ast.Module | None:
        full = self._locate_import(importer, name, dots)
        module = self.modules.get(full) if full is not None else None
        return module.tree if module is not None else None

    def _locate_import(self, importer: ast.Module, name: str, dots: int) -> str | None:
        """Return the path of the local file that an import means."""
        home = self._trees.get(importer)
        return self._places.find(home, name, dots) if home is not None else None

    def lacks(self, module: SourceModule, node: ast.Import | ast.ImportFrom) -> bool:
        """Tell an import of a module of this project that is not there."""
        home = self._trees[module.tree]
        if isinstance(node, ast.ImportFrom) and node.level and not node.module:
            return any(
                self._places.lacks(home, each.name, node.level) for each in node.names if each.name != "*"
            )
        names = (
            [node.module or ""] if isinstance(node, ast.ImportFrom) else [each.name for each in node.names]
        )
        beside = self._neighbours.get(home, set())
        return any(self._places.lacks(home, each, getattr(node, "level", 0), beside) for each in names)

    def is_imported(self, module: SourceModule) -> bool:
        """Tell whether another file of the program imports this one."""
        return self._trees[module.tree] in self._imported

    def is_of_repository(self) -> bool:
        """Tell whether all files of a repository are read."""
        return self._places.of_repository

    def has_users_in_sight(self) -> bool:
        """Tell whether all that could use a file is read, and names it."""
        return self._places.users_in_sight

    # ── the order of what happens ─────────────────────────────────────────────────────────────

    @property
    def entries(self) -> ProgramEntries:
        """The places where the program is entered."""
        if self._entries is None:
            self._entries = ProgramEntries(list(self.modules.values()), self.resolver)
        return self._entries

    def traces_of(self, module: SourceModule) -> list[Trace]:
        """Return the traces that start in a file."""
        return self.entries.traces_of(module.tree)

    def traces_through(self, node: ast.AST) -> Iterator[Trace]:
        """Yield the traces that come by a node, in whatever file they start."""
        return self.entries.through(node)

    def training_loops(self) -> set[ast.AST]:
        """Return the loops of the program in which an optimizer steps."""
        return self.entries.training

    def linked_with(self, module: SourceModule) -> list[SourceModule]:
        """Return a file and those that imports connect it with, whichever imports which."""
        start = self._trees[module.tree]
        if start not in self._components:
            seen, waiting = {start}, [start]
            while waiting:
                new = self._neighbours.get(waiting.pop(), set()) - seen
                seen |= new
                waiting += new
            component = [self.modules[full] for full in sorted(seen) if full in self.modules]
            self._components |= dict.fromkeys(seen, component)
        return self._components[start]

    def module_of(self, node: ast.AST) -> SourceModule:
        """Return the file that a node stands in."""
        return self.modules[self._trees[self.index.tree_of(node)]]

    def entered_by(self, call: ast.AST) -> set[Function]:
        """Return the functions that a call was followed into."""
        return self.entries.tracer.entered_by.get(call, set())

    def entered_from(self, function: Function) -> set[ast.AST]:
        """Return the calls from which a function was followed."""
        return self.entries.tracer.entered_from.get(function, set())


def _names_in_import(node: ast.Import | ast.ImportFrom) -> Iterable[tuple[str, int]]:
    if isinstance(node, ast.Import):
        return [(alias.name, 0) for alias in node.names]
    base = node.module or ""
    names = [".".join(part for part in (base, alias.name) if part) for alias in node.names]
    return [(name, node.level) for name in [base, *names] if name or node.level]
