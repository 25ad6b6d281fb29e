# SPDX-License-Identifier: Apache-2.0
"""The user's own source: the script, and the modules it imported from outside of python's and its packages' folders."""

import hashlib
import sys
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from truestep.core.frames import is_library_file
from truestep.core.system import path_from

UNSEEN = "the code of a notebook or of `python -c`, which is in no file"


class ComparedRunCode(NamedTuple):
    """How the source is to what a checkpoint was saved with."""

    changed: list[str]
    """Files that are other ones now, or gone."""
    unknown: list[str]
    """What could not be compared."""


class CodeOfRun:
    """Hashes each file once, when it is first seen: what runs is what was in it when it was imported."""

    def __init__(self) -> None:
        self._hashes: dict[str, str] = {}
        self._seen: set[str] = set()

    def hashes(self) -> dict[str, str]:
        """Return a hash of each file of the user's that is imported by now, by its path from the script's folder."""
        for name in [name for name in list(sys.modules) if name not in self._seen]:
            self._seen.add(name)
            self._hash_module(sys.modules[name])
        return dict(self._hashes)

    def _hash_module(self, module: ModuleType) -> None:
        path = _own_source_path(module)
        if path is None:
            return
        try:
            self._hashes[_name(path)] = _hash(path)
        except (OSError, ValueError):  # gone since it was imported
            return


CODE_OF_PROCESS = CodeOfRun()


def compare_own_code(saved: dict[str, str]) -> ComparedRunCode:
    """Compare the files that a checkpoint names with those that are there now."""
    changed = []
    for name, digest in saved.items():
        try:
            if _hash(_root() / name) != digest:
                changed.append(f"{name} has changed")
        except OSError:
            changed.append(f"{name} is gone")
    unknown = [] if hasattr(sys.modules["__main__"], "__file__") else [UNSEEN]
    return ComparedRunCode(changed, unknown)


def name_of_run_script() -> str:
    """Return the script's name without its ending; "run" where no file is run."""
    path = source_of_main()
    if path is None:
        return "run"
    return path.parent.name if path.stem == "__main__" else path.stem


def source_of_main() -> Path | None:
    """Return the script that runs; None in a notebook, and where the program is an installed one (pytest)."""
    return _own_source_path(sys.modules["__main__"])


def _own_source_path(module: ModuleType) -> Path | None:
    file = getattr(module, "__file__", None)
    if not isinstance(file, str) or not file.endswith(".py") or is_library_file(file):
        return None
    return Path(file).absolute()


def _root() -> Path:
    path = source_of_main()
    return path.parent if path is not None else Path.cwd()


def _name(path: Path) -> str:
    return Path(path_from(_root(), path)).as_posix()


def _hash(path: Path) -> str:
    # 64 bits are enough to notice an edit; nobody is to be convinced of more
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
