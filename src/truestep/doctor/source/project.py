# SPDX-License-Identifier: Apache-2.0
"""The files that are read together: those that are named, and the local ones that they reach by their imports.

Python looks for a module in the folder of the script, and where a package is installed. Both are tried, and the
folders between a file and the top of its project, since scripts put those on `sys.path` themselves.
"""

import ast
import os
import sys
import tokenize
from collections.abc import Iterable, Iterator, Mapping

from truestep.doctor.source.events import Trace
from truestep.doctor.source.linking import BENEATH
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Index
from truestep.doctor.source.resolving import Resolver
from truestep.doctor.source.tracing import follow

_TOP = (".git", "pyproject.toml", "setup.py", "setup.cfg", ".hg")  # what marks the top of a project
_LEVELS = 6  # folders above a file in which its imports are looked for
_LIBRARIES = frozenset(
    ("torch", "torchvision", "torchaudio", "numpy", "transformers", *sys.stdlib_module_names)
)
Parsed = SourceModule | Exception


class Disk:
    """Source files on the disk."""

    def exists(self, path: str) -> bool:
        """Tell whether there is such a file."""
        return os.path.isfile(path)

    def is_top(self, folder: str) -> bool:
        """Tell whether a project begins in a folder."""
        return any(os.path.exists(os.path.join(folder, each)) for each in _TOP)

    def text(self, path: str) -> str:
        """Return the text of a file in its own encoding."""
        with tokenize.open(path) as file:
            return file.read()


class Texts(Disk):
    """Files that are given as texts; nothing is looked for on the disk."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.texts = {os.path.abspath(path): text for path, text in texts.items()}

    def exists(self, path: str) -> bool:
        """Tell whether there is such a file."""
        return path in self.texts

    def is_top(self, folder: str) -> bool:
        """Tell whether a project begins in a folder: in the one above all files."""
        return folder == os.path.commonpath([os.path.dirname(each) for each in self.texts])

    def text(self, path: str) -> str:
        """Return the text of a file."""
        return self.texts[path]


class Project:
    """Reads files once, links their imports, and follows the program from each place where it is entered."""

    def __init__(self, files: Disk | None = None) -> None:
        self.files = files or Disk()
        self.index = Index()
        self.resolver = Resolver(self.index, self._find)
        self.modules: dict[str, SourceModule] = {}  # by full path
        self._trees: dict[ast.Module, str] = {}
        self._found: dict[tuple[str, str, int], str | None] = {}
        self._roots: dict[str, list[str]] = {}
        self._linked: set[str] = set()
        self._neighbours: dict[str, set[str]] = {}
        self._components: dict[str, list[SourceModule]] = {}
        self._traces: dict[ast.Module, list[Trace]] | None = None

    def add(self, text: str, path: str) -> SourceModule:
        """Parse one file that is to be read.

        Raises:
            SyntaxError, ValueError, RecursionError: Python can't parse it.
        """
        module = SourceModule(text, path, self.resolver, self)
        full = os.path.abspath(path)
        self.modules[full] = module
        self._trees[module.tree] = full
        return module

    def link(self) -> None:
        """Parse what the files reach by their imports, and by the imports of those."""
        waiting = [full for full in self.modules if full not in self._linked]
        while waiting:
            full = waiting.pop()
            self._linked.add(full)
            for found in self._reached(self.modules[full]):
                self._neighbours.setdefault(full, set()).add(found)
                self._neighbours.setdefault(found, set()).add(full)
                if found not in self.modules and self._parse(found, self.modules[full].path):
                    waiting.append(found)

    def _reached(self, module: SourceModule) -> Iterator[str]:
        nodes: list[ast.Import | ast.ImportFrom] = [*module.all(ast.Import), *module.all(ast.ImportFrom)]
        for node in nodes:
            for name, dots in _names_of(node):
                found = self._locate(module.tree, name, dots)
                if found is not None:
                    yield found
                    yield from self._packages_above(found)

    def _packages_above(self, path: str) -> Iterator[str]:
        folder = os.path.dirname(path)
        while self.files.exists(os.path.join(folder, "__init__.py")):
            yield os.path.join(folder, "__init__.py")
            folder = os.path.dirname(folder)

    def _parse(self, full: str, importer: str) -> bool:
        shown = full if os.path.isabs(importer) else os.path.relpath(full)
        try:
            self.add(self.files.text(full), shown)
        except (OSError, SyntaxError, ValueError, RecursionError):
            return False  # what it would say is not known; the file itself is named when it is read
        return True

    # ── imports ───────────────────────────────────────────────────────────────────────────────

    def _find(self, importer: ast.Module, name: str, dots: int) -> ast.Module | None:
        full = self._locate(importer, name, dots)
        module = self.modules.get(full) if full is not None else None
        return module.tree if module is not None else None

    def _locate(self, importer: ast.Module, name: str, dots: int) -> str | None:
        """Return the path of the local file that an import means."""
        home = self._trees.get(importer)
        if home is None:
            return None
        key = (os.path.dirname(home) if dots != BENEATH else home, name, dots)
        if key not in self._found:
            self._found[key] = self._search(home, name, dots)
        found = self._found[key]
        return found if found != home else None

    def _search(self, home: str, name: str, dots: int) -> str | None:
        folder = os.path.dirname(home)
        if dots == BENEATH:
            return self._beneath(folder, name) if home.endswith("__init__.py") else None
        if dots:
            for _ in range(dots - 1):
                folder = os.path.dirname(folder)
            return self._beneath(folder, name)
        if not name or name.partition(".")[0] in _LIBRARIES:
            return None
        found = (self._beneath(root, name) for root in self._search_path(folder))
        return next((each for each in found if each is not None), None)

    def _beneath(self, folder: str, name: str) -> str | None:
        path = os.path.join(folder, *name.split("."))
        for candidate in (os.path.join(path, "__init__.py"), f"{path}.py" if name else ""):
            if candidate and self.files.exists(candidate):
                return candidate
        return None

    def _search_path(self, folder: str) -> list[str]:
        """Return the folders in which a file's imports are looked for, as Python would, the likeliest first."""
        if folder not in self._roots:
            found, current = [folder], folder
            while self.files.exists(os.path.join(current, "__init__.py")):
                current = os.path.dirname(current)
                found.append(current)
            above = _ancestors(current)
            tops = [index for index, each in enumerate(above) if self.files.is_top(each)]
            for each in above[: tops[0] + 1] if tops else []:
                found += [each, os.path.join(each, "src")]
            self._roots[folder] = list(dict.fromkeys(found))
        return self._roots[folder]

    # ── the order of what happens ─────────────────────────────────────────────────────────────

    def traces_of(self, module: SourceModule) -> list[Trace]:
        """Return the traces that start in a file."""
        return self._followed()[module.tree]

    def every_trace(self) -> list[Trace]:
        """Return the traces of all files."""
        return [trace for traces in self._followed().values() for trace in traces]

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

    def _followed(self) -> dict[ast.Module, list[Trace]]:
        if self._traces is None:
            self._traces = {each.tree: [] for each in self.modules.values()}
            for trace in follow(list(self.modules.values()), self.resolver):
                self._traces[self.index.tree_of(trace.root)].append(trace)
        return self._traces


def project_of(texts: Mapping[str, str]) -> Project:
    """Return the project that some texts are, by path."""
    project = Project(Texts(texts))
    for path, text in texts.items():
        project.add(text, path)
    project.link()
    return project


def _names_of(node: ast.Import | ast.ImportFrom) -> Iterable[tuple[str, int]]:
    if isinstance(node, ast.Import):
        return [(alias.name, 0) for alias in node.names]
    base = node.module or ""
    names = [".".join(part for part in (base, alias.name) if part) for alias in node.names]
    return [(name, node.level) for name in [base, *names] if name or node.level]


def _ancestors(folder: str) -> list[str]:
    found = [folder]
    while len(found) <= _LEVELS and os.path.dirname(found[-1]) != found[-1]:
        found.append(os.path.dirname(found[-1]))
    return found
