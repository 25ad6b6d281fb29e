# SPDX-License-Identifier: Apache-2.0
"""The script or module that is to be run under watch."""

import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

from truestep.core.user_frames import is_library_file
from truestep.doctor.finding import Place


@dataclass(frozen=True)
class WatchedScript:
    """What is to be run: a file, or a module as `python -m` would."""

    name: str
    is_module: bool
    arguments: tuple[str, ...]
    started_in: Path = field(default_factory=Path.cwd)

    def file(self) -> str:
        """Return the script's absolute name, which is what Python itself calls it."""
        return str(self.started_in / self.name)

    @property
    def is_notebook(self) -> bool:
        """Whether its code is in the cells of a notebook."""
        return not self.is_module and self.name.endswith(".ipynb")

    def cell_file(self, number: object) -> str:
        """Return what the code of a cell has as its file's name: a finding's path and cell."""
        return f"{self.file()}:{number}"

    def shown(self, place: Place) -> Place:
        """Return a place with its file named as the user would: the script as it was given, others from here."""
        if self.is_notebook and place.path.startswith(self.cell_file("")):
            return replace(place, path=self.name, cell=int(place.path.rpartition(":")[2]))
        return replace(place, path=self.shown_path(place.path))

    def shown_path(self, full: str) -> str:
        """Return a file's name as the user would give it."""
        if not self.is_module and full == self.file():
            return self.name
        path = Path(full)
        return str(path.relative_to(self.started_in)) if path.is_relative_to(self.started_in) else full

    def folder(self) -> Path:
        """Return where Python looks first for what a script imports."""
        return Path.cwd() if self.is_module else Path(self.name).resolve().parent

    def own_torch(self) -> Path | None:
        """Return a file or package of the user's that is called torch, if there is one."""
        places = (self.folder() / "torch.py", self.folder() / "torch" / "__init__.py")
        return next((each for each in places if each.is_file()), None)

    def run_apart(self) -> int:
        """Run it in a Python of its own, unwatched, and return its status."""
        how = ["-m", self.name] if self.is_module else [self.name]
        ran = subprocess.run([sys.executable, *how, *self.arguments], check=False)
        return ran.returncode if ran.returncode >= 0 else 128 - ran.returncode

    def sources(self) -> list[Path]:
        """Return the source file, where there is one to read: what is installed is followed by no reading."""
        if not self.is_module:
            return [Path(self.name)] if Path(self.name).is_file() else []
        import importlib.util

        sys.path.insert(0, str(Path.cwd()))
        try:
            found = importlib.util.find_spec(self.name)
            if found is not None and found.submodule_search_locations:
                found = importlib.util.find_spec(f"{self.name}.__main__")
        except (ImportError, ValueError):
            found = None
        finally:
            sys.path.pop(0)
        if found is None or not found.origin or is_library_file(found.origin):
            return []
        return [Path(found.origin)]
