# SPDX-License-Identifier: Apache-2.0
"""Names the cells of the notebook that is open: a kernel runs each from a file whose name says nothing."""

import linecache
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from truestep.doctor.finding import Finding, Place


def in_cells(findings: Sequence[Finding]) -> list[Finding]:
    """Return findings whose places in cells are called "cell [5]", as the notebook numbers what has run."""
    return [replace(each, place=_in_cell(each.place)) for each in findings]


def lines_of_cells(findings: Sequence[Finding]) -> Mapping[Place, str]:
    """Return the lines of code that findings in cells stand at, by the places that `in_cells` gives."""
    lines = {_in_cell(each.place): (each.place, _line(each.place)) for each in findings}
    return {place: line for place, (before, line) in lines.items() if place != before}


def _in_cell(place: Place) -> Place:
    label = _label(place.path)
    return place if label is None else replace(place, path=f"cell {label}")


def _label(file: str) -> str | None:
    """Return "[5]" of a file that a kernel made for a cell's code; None of any other, and outside of notebooks."""
    if "IPython" not in sys.modules:
        return None
    with suppress(AttributeError, TypeError, ValueError):  # of a shell of another version
        compiler: Any = sys.modules["IPython"].get_ipython().compile
        name: str = compiler.format_code_name(file)[1]  # "In[5]"; None for what is no cell
        return name.removeprefix("In")
    return None


def _line(place: Place) -> str:
    return linecache.getline(place.path, place.line).rstrip("\n")
