# SPDX-License-Identifier: Apache-2.0
"""Runs in a terminal, side by side."""

from collections.abc import Iterator

from truestep.core.rich_imports import Group, RenderableType, Table, Text
from truestep.core.text_formatting import duration_text, number_text
from truestep.report.compare import RunComparison
from truestep.report.screen import printable
from truestep.report.settings_tables import setting_text


def run_comparison_table(found: RunComparison) -> RenderableType:
    """Return what differs and the best values, a column for each run; of one run the best values alone."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("", *map(printable, found.runs)):
        table.add_column(heading, overflow="fold")
    for each in found.differences:
        table.add_row(
            Text(printable(each.setting)), *(Text(printable(setting_text(value))) for value in each.values)
        )
    if len(found.runs) > 1 and not found.differences:
        table.add_row(
            Text("settings"),
            Text("the same" if not found.circumstances else "the same, but for what stands below"),
        )
    for best in found.best:
        cells = [f"{number_text(each.value)} at {each.step:,}" if each else "-" for each in best.values]
        styles = ["bold green" if place == best.best_run else "" for place in range(len(cells))]
        table.add_row(Text(f"best {printable(best.metric)}"), *map(Text, cells, styles))
    table.add_row(Text("steps"), *(Text(f"{step:,}") for step in found.steps))
    table.add_row(Text("time"), *(Text(duration_text(seconds)) for seconds in found.elapsed_seconds))
    return Group(*_best_run_sentence(found), table, *_other_differences(found))


def _other_differences(found: RunComparison) -> Iterator[RenderableType]:
    """Name what else differs; the page shows it whole."""
    if found.circumstances:
        names = ", ".join(printable(each.setting) for each in found.circumstances)
        yield Text(f"Also different (values on the page): {names}")


def _best_run_sentence(found: RunComparison) -> Iterator[RenderableType]:
    """Name the best run in words: colours are not seen by everybody, nor in a pipe."""
    if len(found.runs) > 1 and found.best:
        first = found.best[0]
        value = first.values[first.best_run]
        assert value is not None
        where = f"{number_text(value.value)} at step {value.step:,}"
        yield Text(
            f"Best {printable(first.metric)}: {printable(found.runs[first.best_run])}, {where}", "bold"
        )
        yield Text()
