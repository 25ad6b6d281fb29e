# SPDX-License-Identifier: Apache-2.0
"""The user's own source: the script, and the modules it imported from outside of python's and its packages' folders."""

import hashlib
import sys
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from truestep.core.os_specific import relative_path
from truestep.core.user_frames import is_library_file

UNSEEN = "the code of a notebook or of `python -c`, which is in no file"


class RunCodeComparison(NamedTuple):
    """How the source is to what a checkpoint was saved with."""

    changed: list[str]
    """Files that are other ones now, or gone."""
    unknown: list[str]
    """What could not be compared."""


class UserSourceHashes:
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
            self._hashes[_path_from_root(path)] = _hash_file(path)
        except (OSError, ValueError):  # gone since it was imported
            return


CODE_OF_PROCESS = UserSourceHashes()


def compare_own_code(saved: dict[str, str]) -> RunCodeComparison:
    """Compare the files that a checkpoint names with those that are there now."""
    changed = []
    for name, digest in saved.items():
        try:
            if _hash_file(_source_root_folder() / name) != digest:
                changed.append(f"{name} has changed")
        except OSError:
            changed.append(f"{name} is gone")
    unknown = [] if hasattr(sys.modules["__main__"], "__file__") else [UNSEEN]
    return RunCodeComparison(changed, unknown)


def script_name() -> str:
    """Return the script's name without its ending; "run" where no file is run."""
    path = path_of_main_script()
    if path is None:
        return "run"
    return path.parent.name if path.stem == "__main__" else path.stem


def path_of_main_script() -> Path | None:
    """Return the script that runs; None in a notebook, and where the program is an installed one (pytest)."""
    return _own_source_path(sys.modules["__main__"])


def _own_source_path(module: ModuleType) -> Path | None:
    file = getattr(module, "__file__", None)
    if not isinstance(file, str) or not file.endswith(".py") or is_library_file(file):
        return None
    return Path(file).absolute()


def _source_root_folder() -> Path:
    path = path_of_main_script()
    return path.parent if path is not None else Path.cwd()


def _path_from_root(path: Path) -> str:
    return Path(relative_path(_source_root_folder(), path)).as_posix()


def _hash_file(path: Path) -> str:
    # 64 bits are enough to notice an edit; nobody is to be convinced of more
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
