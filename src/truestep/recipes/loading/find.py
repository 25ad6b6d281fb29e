# SPDX-License-Identifier: Apache-2.0
"""Which recipes there are: the files of the recipes folder, and any file that is named."""

import os
from pathlib import Path

from truestep.errors import OptionError, nearest

FOLDER = Path(__file__).parents[1]


def recipes() -> dict[str, Path]:
    """Return the recipes that come with the package, by name."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.py")) if not path.stem.startswith("_")}


def find(name: str) -> Path:
    """Return the file of a recipe, given by name or as the path of a Python file."""
    known = recipes()
    if name in known:
        return known[name]
    if not (name.endswith(".py") or os.sep in name):
        raise OptionError(f"There is no recipe {name!r}. {nearest(name, known)} A file ends in .py.")
    path = Path(name)
    if not path.is_file():
        raise OptionError(f"There is no file {name} in {Path.cwd()}. {_neighbours(path, known)}")
    return path


def _neighbours(path: Path, known: dict[str, Path]) -> str:
    folder = path.parent
    if not folder.is_dir():
        return f"There is no folder {folder} either."
    names = {file.name for file in folder.glob("*.py")}
    return nearest(path.name, names) if names else f"Recipes that come with Truestep: {', '.join(known)}."
