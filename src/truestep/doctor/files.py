# SPDX-License-Identifier: Apache-2.0
"""The files that given files and folders stand for."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from truestep.core.errors import OptionError, did_you_mean_path
from truestep.doctor import markdown
from truestep.doctor.selection import CheckSelection

_PASSED_OVER = {"__pycache__", "node_modules", "site-packages", "build", "dist"}
_ENDINGS = (".py", ".ipynb", *markdown.ENDINGS)
_NO_CODE = (
    *(".yaml", ".yml", ".json", ".toml", ".ini", ".cfg", ".csv", ".log", ".sh", ".html"),
    *(".pt", ".pth", ".ckpt", ".safetensors"),
)


def files_to_read(paths: Sequence[Path], selection: CheckSelection) -> Iterator[Path]:
    """Yield each file once: those named, and those beneath the folders, but for what is passed over.

    Raises:
        OptionError: a path that does not exist, or is neither a file nor a folder, or a file that holds no Python by its ending.
    """
    seen: set[str] = set()
    for path in paths:
        if not path.exists():
            instead = (
                did_you_mean_path(path) or " Name one that is there, or none for this folder: truestep read"
            )
            raise OptionError(f"There is no file or folder {str(path)!r} to read.{instead}")
        if not path.is_dir() and not path.is_file():
            raise OptionError(
                f"{str(path)!r} is no file but a pipe or a device, which gives its contents only once: "
                "write them to a file and read that."
            )
        if path.is_file() and path.name.lower().endswith(_NO_CODE):
            raise OptionError(
                f"{str(path)!r} holds no Python, by its ending, so nothing in it can be read: give the script that uses it (.py), "
                "a notebook (.ipynb), a page (.md), notes (.txt), or a folder of these."
            )
        for each in _walk_folder(path, selection) if path.is_dir() else [path]:
            full = str(each.absolute())
            if full not in seen:
                seen.add(full)
                yield each


def is_excluded(path: Path, selection: CheckSelection) -> bool:
    """Tell whether the selection leaves out a file, by its path from the folder that is read."""
    return any(path.match(pattern) or pattern.rstrip("/") in path.parts for pattern in selection.exclude)


def _walk_folder(folder: Path, selection: CheckSelection) -> Iterator[Path]:
    """Walk a folder in the order of names; links to folders are not followed, so that no circle is."""
    for here, folders, names in os.walk(folder):
        inside = Path(here).relative_to(folder)
        folders[:] = sorted(each for each in folders if not _is_skipped_folder(inside / each, selection))
        for name in sorted(names):
            found = Path(here, name)
            if name.endswith(_ENDINGS) and not is_excluded(inside / name, selection) and found.is_file():
                yield found


def _is_skipped_folder(folder: Path, selection: CheckSelection) -> bool:
    return folder.name in _PASSED_OVER or folder.name.startswith(".") or is_excluded(folder, selection)
