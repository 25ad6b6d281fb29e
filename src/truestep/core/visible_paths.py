# SPDX-License-Identifier: Apache-2.0
"""What is at a path, where "may not look" means "not there": pathlib raises for it before Python 3.14."""

from pathlib import Path


def is_visible_file(path: Path) -> bool:
    """Return whether a file is there that this user may see."""
    try:
        return path.is_file()
    except OSError:
        return False


def is_visible_folder(path: Path) -> bool:
    """Return whether a folder is there that this user may see."""
    try:
        return path.is_dir()
    except OSError:
        return False


def is_visible_path(path: Path) -> bool:
    """Return whether anything is there that this user may see."""
    try:
        return path.exists()
    except OSError:
        return False


def visible_paths_in(folder: Path, pattern: str) -> list[Path]:
    """Return what matches in a folder, sorted; nothing where this user may not look."""
    try:
        return sorted(folder.glob(pattern))
    except OSError:
        return []
