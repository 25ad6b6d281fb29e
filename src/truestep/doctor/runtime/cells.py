# SPDX-License-Identifier: Apache-2.0
"""Runs the code cells of a notebook one after another, as its kernel would, but for magics and shell lines."""

import linecache
from codeop import Compile
from functools import cache
from pathlib import Path
from typing import Any

from truestep.core.errors import OptionError
from truestep.doctor.notebook import parse_notebook
from truestep.doctor.runtime.script import WatchedScript


@cache
def cells_to_run(script: WatchedScript) -> list[tuple[int, str]]:
    """Return the number and the Python of each cell.

    Raises:
        OptionError: it is no notebook of Python, or a cell is no Python.
    """
    try:
        notebook = parse_notebook(Path(script.file()).read_text("utf-8-sig"))
    except (OSError, ValueError) as error:
        raise OptionError(f"{script.name} can't be run: {error}") from error
    for number, reason in notebook.unreadable:
        raise OptionError(f"Cell {number} of {script.name} can't be run: {reason}.")
    return list(notebook.cells)


def run_cells(script: WatchedScript, names: dict[str, Any]) -> None:
    """Run a notebook's cells with `names` as their variables.

    Each cell has a file's name of its own, so that places and tracebacks say which it was.
    """
    names["display"] = print
    compiled = Compile()  # which remembers imports from __future__
    for number, text in cells_to_run(script):
        file = script.cell_file(number)
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        exec(compiled(text, file, "exec"), names)  # noqa: S102 - running the user's code is what was asked for
