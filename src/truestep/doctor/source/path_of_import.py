# SPDX-License-Identifier: Apache-2.0
"""Which local file an import means.

Python looks for a module in the folder of the script, and where a package is installed. Both are tried, and the
folders between a file and the top of its project, since scripts put those on `sys.path` themselves.
"""

import os
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator, Mapping

from truestep.doctor.source.linking import BENEATH

_TOP = (".git", "pyproject.toml", "setup.py", "setup.cfg", ".hg")  # what marks the top of a project
_LEVELS = 6  # folders above a file in which its imports are looked for
_INSTALLED = ("site-packages", "dist-packages")  # here one package is a library to the others
_LIBRARIES = frozenset(
    ("torch", "torchvision", "torchaudio", "numpy", "transformers", *sys.stdlib_module_names)
)


def source_file_text(path: str | os.PathLike[str]) -> str:
    """Return the text of a Python file in the encoding that it names.

    Raises:
        OSError, SyntaxError, ValueError: it can't be opened or decoded.
    """
    try:
        with tokenize.open(path) as file:
            return file.read()
    except LookupError as error:  # `# coding: hex` names a codec, but none of text
        raise ValueError(str(error)) from None


class SourceDisk:
    """Source files on the disk; each folder is listed once, as Python's own search for modules does it."""

    def __init__(self) -> None:
        self._listed: dict[str, tuple[set[str], bool]] = {}

    def exists(self, path: str) -> bool:
        """Tell whether there is such a Python file."""
        folder, name = os.path.split(path)
        return name in self._list_folder(folder)[0]

    def has(self, folder: str, name: str) -> bool:
        """Tell whether a folder holds a module or another folder of this name."""
        path = os.path.join(folder, name)
        return self.exists(f"{path}.py") or os.path.isdir(path)

    def holds(self, folder: str, name: str) -> bool:
        """Tell whether a folder holds anything of this name, built or to be built: `name.so`, `name.pyx`, `name/`."""
        try:
            return any(each.split(".")[0] == name for each in os.listdir(folder))
        except OSError:
            return True  # it can't be looked into

    def is_top(self, folder: str) -> bool:
        """Tell whether a project begins in a folder."""
        return self._list_folder(folder)[1]

    def _list_folder(self, folder: str) -> tuple[set[str], bool]:
        """Return the names of the Python files in a folder, and whether a project begins there."""
        if folder not in self._listed:
            try:
                with os.scandir(folder) as found:
                    entries = [each for each in found if each.name.endswith(".py") or each.name in _TOP]
            except (OSError, ValueError):
                entries = []
            names = {each.name for each in entries if each.name.endswith(".py") and _is_file(each)}
            self._listed[folder] = names, any(each.name in _TOP for each in entries)
        return self._listed[folder]

    def text(self, path: str) -> str:
        """Return the text of a file in its own encoding.

        Raises:
            OSError, SyntaxError, ValueError: it can't be opened or decoded.
        """
        return source_file_text(path)


def _is_file(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_file()  # or a link to one
    except OSError:
        return False


class SourceTexts(SourceDisk):
    """Files that are given as texts; nothing is looked for on the disk."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        super().__init__()
        self.texts = {os.path.abspath(path): text for path, text in texts.items()}

    def exists(self, path: str) -> bool:
        """Tell whether there is such a file."""
        return path in self.texts

    def has(self, folder: str, name: str) -> bool:
        """Tell whether a folder holds a module or another folder of this name."""
        path = os.path.join(folder, name)
        return f"{path}.py" in self.texts or any(each.startswith(path + os.sep) for each in self.texts)

    def holds(self, folder: str, name: str) -> bool:
        """Tell whether a folder holds a module or another folder of this name."""
        return self.has(folder, name)

    def is_top(self, folder: str) -> bool:
        """Tell whether a project begins in a folder: in the one above all files."""
        return folder == os.path.commonpath([os.path.dirname(each) for each in self.texts])

    def text(self, path: str) -> str:
        """Return the text of a file."""
        return self.texts[path]


class ImportPlaces:
    """Finds the local file behind an import; each question is answered once."""

    def __init__(
        self,
        files: SourceDisk,
        *,
        of_repository: bool = False,
        users_in_sight: bool = False,
        tops: Iterable[str] = (),
    ) -> None:
        self.files = files
        self._tops = frozenset(
            map(os.path.abspath, tops)
        )  # folders that are read whole: projects, be it without a mark of one
        self.of_repository = of_repository  # whether all files of it are read
        self.users_in_sight = users_in_sight  # and none of them finds another by a text
        scope = f"repository {users_in_sight}" if of_repository else "files"
        self.scope = " ".join([scope, *sorted(self._tops)])
        self._found: dict[tuple[str, str, int], str | None] = {}
        self._roots: dict[str, list[str]] = {}
        self._with_first: dict[tuple[str, str], list[str]] = {}
        self._above: dict[str, list[str]] = {}

    def find(self, home: str, name: str, dots: int) -> str | None:
        """Return the path of the file that an import in `home` means, if it is a local one."""
        key = (os.path.dirname(home) if dots != BENEATH else home, name, dots)
        if key not in self._found:
            self._found[key] = self._search_import(home, name, dots)
        found = self._found[key]
        return found if found != home else None

    def reached(self, home: str, name: str, dots: int) -> Iterator[str]:
        """Yield what an import runs: the file, and the packages above it."""
        found = self.find(home, name, dots)
        if found is not None:
            yield found
            yield from self._packages_from(os.path.dirname(found))

    def lacks(self, home: str, name: str, dots: int, beside: Iterable[str] = ()) -> bool:
        """Tell an import of a module that a folder of this project ought to hold, and does not.

        A folder is a package of the project by its `__init__.py`, or by what else the file takes from it.
        """
        parts = name.split(".")
        if dots:
            folder = os.path.dirname(home)
            for _ in range(dots - 1):
                folder = os.path.dirname(folder)
            return not self._is_resolvable(folder, parts)
        roots = self._roots_with(os.path.dirname(home), parts[0]) if parts[0] not in _LIBRARIES else []
        folders = [os.path.join(each, parts[0]) for each in roots]
        is_own = any(
            self.files.exists(os.path.join(folder, "__init__.py"))
            or any(each.startswith(folder + os.sep) for each in beside)
            for folder in folders
        )
        return len(parts) > 1 and is_own and not any(self._is_resolvable(each, parts) for each in roots)

    def _is_resolvable(self, folder: str, parts: list[str]) -> bool:
        """Tell whether each part of a name is there, or may be what the package above it gives that name."""
        for part in parts:
            own = os.path.join(folder, "__init__.py")
            if not self.files.holds(folder, part):
                return self.files.exists(own) and _can_give_name(self.files, own, part)
            folder = os.path.join(folder, part)
        return True

    def _packages_from(self, folder: str) -> list[str]:
        """Return the packages that a folder and those above it are, the innermost first."""
        if folder not in self._above:
            own = os.path.join(folder, "__init__.py")
            is_package = self.files.exists(own)
            self._above[folder] = [own, *self._packages_from(os.path.dirname(folder))] if is_package else []
        return self._above[folder]

    def _search_import(self, home: str, name: str, dots: int) -> str | None:
        folder = os.path.dirname(home)
        if dots == BENEATH:
            return self._file_beneath(folder, name) if home.endswith("__init__.py") else None
        if dots:
            for _ in range(dots - 1):
                folder = os.path.dirname(folder)
            return self._file_beneath(folder, name)
        if not name or name.partition(".")[0] in _LIBRARIES:
            return None
        found = (self._file_beneath(root, name) for root in self._roots_with(folder, name.partition(".")[0]))
        return next((each for each in found if each is not None), None)

    def _roots_with(self, folder: str, first: str) -> list[str]:
        """Return the folders in which the first part of a name is found at all: of a library's, none."""
        if (folder, first) not in self._with_first:
            own = [
                each for each in self._search_path(folder) if not _is_installed_library(first, folder, each)
            ]
            found = [each for each in own if self.files.has(each, first)]
            self._with_first[folder, first] = found
        return self._with_first[folder, first]

    def _file_beneath(self, folder: str, name: str) -> str | None:
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
            above = _ancestor_folders(current)
            tops = [place for place, each in enumerate(above) if self._is_project_top(each)]
            for each in above[: tops[0] + 1] if tops else []:
                found += [each, os.path.join(each, "src")]
            self._roots[folder] = list(dict.fromkeys(found))
        return self._roots[folder]

    def _is_project_top(self, folder: str) -> bool:
        is_named = folder in self._tops or os.path.basename(folder) in _INSTALLED
        return is_named or self.files.is_top(folder)


def _can_give_name(files: SourceDisk, package: str, name: str) -> bool:
    """Tell a package that names a name, takes all of another, or reaches for what is on other paths."""
    try:
        text = files.text(package)
    except (OSError, SyntaxError, ValueError):
        return True
    return re.search(rf"\b{re.escape(name)}\b|import \*|__path__|__getattr__|sys\.modules", text) is not None


def _is_installed_library(first: str, folder: str, root: str) -> bool:
    """Tell another package beside the one of a folder, where packages are installed: it is no file of this program."""
    if os.path.basename(root) not in _INSTALLED or folder == root:
        return False
    return os.path.relpath(folder, root).split(os.sep)[0] != first


def _ancestor_folders(folder: str) -> list[str]:
    found = [folder]
    while len(found) <= _LEVELS and os.path.dirname(found[-1]) != found[-1]:
        found.append(os.path.dirname(found[-1]))
    return found
