# SPDX-License-Identifier: Apache-2.0
"""What is at a path, where "may not look" means "not there": pathlib raises for it before Python 3.14."""

import os.path
from pathlib import Path

# Whether a file, a folder, or anything is there that this user may see.
is_visible_file, is_visible_folder, is_visible_path = os.path.isfile, os.path.isdir, os.path.exists


def visible_paths_in(folder: Path, pattern: str) -> list[Path]:
    """Return what matches in a folder, sorted; nothing where this user may not look."""
    try:
        return sorted(folder.glob(pattern))
    except OSError:
        return []
