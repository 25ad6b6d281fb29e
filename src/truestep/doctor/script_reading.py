# SPDX-License-Identifier: Apache-2.0
"""Reads what a script under watch is made of: its own file, and the user's modules that it imports.

What import lines reach is read before the script runs, as it was when the run began. What was imported in other ways
(by name, from a registry) is known when the run is over, and read then.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from truestep.core.user_frames import is_library_file
from truestep.doctor.files import is_excluded
from truestep.doctor.linting import read_paths
from truestep.doctor.read_progress import Waiting
from truestep.doctor.reading_result import SourceReading
from truestep.doctor.runtime.script import WatchedScript
from truestep.doctor.selection import CheckSelection
from truestep.doctor.source.import_units import files_reached_from


class ScriptSources:
    """The source files of one script."""

    def __init__(self, script: WatchedScript, selection: CheckSelection, cache: Path | None = None) -> None:
        self._script, self._selection, self._cache = script, selection, cache
        self._before = set(sys.modules)  # imported by others than the script
        self._read: set[str] = set()

    def read(self, waiting: Waiting | None = None) -> SourceReading:
        """Read the script and what its import lines reach, and those of what they reach."""
        own = self._script.sources()
        return self._read_files([*own, *self._selected_files(files_reached_from(own))], waiting)

    def read_imported(self) -> SourceReading:
        """Read what was imported meanwhile and no import line told of."""
        imported = sorted({*self._imported_user_files()} - self._read)
        return self._read_files(self._selected_files(imported), None) if imported else SourceReading()

    def _read_files(self, files: list[Path], waiting: Waiting | None) -> SourceReading:
        self._read |= {os.path.normpath(each.absolute()) for each in files}
        return read_paths(files, self._selection, waiting, cache=self._cache)

    def _selected_files(self, full_paths: list[str]) -> list[Path]:
        """Return files as the user would name them, without those that the selection leaves out."""
        shown = [self._script.shown_path(each) for each in full_paths]
        return [
            each
            for each in map(Path, shown)
            if not any(is_excluded(part, self._selection) for part in (each, *each.parents))
        ]

    def _imported_user_files(self) -> Iterator[str]:
        folders = (self._script.started_in, self._script.folder())
        for name, module in list(sys.modules.items()):
            file = None if name in self._before else getattr(module, "__file__", None)
            if not isinstance(file, str) or not file.endswith(".py") or is_library_file(file):
                continue
            path = Path(file).absolute()
            if any(path.is_relative_to(each) for each in folders) and path.is_file():
                yield str(path)
