# SPDX-License-Identifier: Apache-2.0
"""The legend of the table: each column's unit, range and meaning."""

from collections.abc import Iterator
from typing import Any

from truestep.core.rich_imports import Console, ConsoleOptions, RenderableType, Text
from truestep.machine.gpus.columns import IDENTITY, LOAD
from truestep.machine.gpus.table import gpu_table

WHY_BOTH = (
    "Memory and utilisation are different things: memory is room that is taken, utilisation is time in "
    "which something ran. A card may be full and idle (a notebook left open), or busy and nearly empty (a "
    "small model). To start a job look at free memory; to see whether a job uses its card look at "
    "utilisation and power together."
)


class GpuTableLegend:
    """Draws the legend."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        heads = [(column.heads, column.meaning) for column in (*LOAD, *IDENTITY)]
        rows = [(title, unit, values, meaning) for (title, _, unit, values), meaning in heads]
        headings = [("Column", False), ("Unit", False), ("Range", False), ("Meaning", False)]
        yield gpu_table(headings, rows, flexible=3)
        yield ""
        yield Text(WHY_BOTH)


def gpu_legend_document() -> dict[str, Any]:
    """Return the legend as a document."""
    names = ("title", "fields", "unit", "range", "meaning")
    values = [[each or None for each in (*column.heads, column.meaning)] for column in (*LOAD, *IDENTITY)]
    lines = [dict(zip(names, each, strict=True)) for each in values]
    return {"schema_version": 1, "columns": lines, "note": WHY_BOTH}
