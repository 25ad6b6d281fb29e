# SPDX-License-Identifier: Apache-2.0
"""Runs in a terminal, listed."""

import shlex
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from truestep.checkpoints.foreign_formats import describe_path_without_run
from truestep.core.rich_imports import Group, RenderableType, Table, Text
from truestep.core.text_formatting import bytes_text, number_text
from truestep.report.listing import RunList, RunSummary
from truestep.report.state import SCRIPT_ENDED

STYLES = {
    "running": "bold cyan",
    "finished": "green",
    "stopped": "yellow",
    "interrupted": "yellow",
    "damaged": "bold red",
    "unknown": "dim",
}
COMPARED = 3  # runs named in the command that compares them
PERIODS = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))


def run_list_table(found: RunList) -> RenderableType:
    """Return the table, why runs ended early, and what can be done next."""
    if not found.runs:
        instead = describe_path_without_run(Path(found.folder)) if Path(found.folder).is_dir() else ""
        return Text(
            f"There are no runs in {printable(found.folder)}.{printable(instead) or ' A script with ts.Run(...) makes one.'}"
        )
    metrics = {run.metric for run in found.runs if run.metric}
    metric = metrics.pop() if len(metrics) == 1 else None
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("run", overflow="fold")
    for heading in ("state", "step", f"best {printable(metric)}" if metric else "best", "size", "changed"):
        is_number = heading in ("step", "size")
        table.add_column(heading, justify="right" if is_number else "left", overflow="fold")
    now = datetime.now(UTC)
    for run in found.runs:
        state = Text(run.state, STYLES[run.state])
        cells = (
            f"{run.step:,}",
            _best_value_text(run, named=metric is None),
            bytes_text(run.size_bytes),
            _time_since_change_text(run, now),
        )
        table.add_row(Text(printable(run.directory)), state, *map(Text, cells))
    return Group(table, *_early_end_reasons(found), *_comparison_command_hint(found))


def _best_value_text(run: RunSummary, *, named: bool) -> str:
    if run.best_value is None or run.best_step is None:
        return "-"
    name = f"{printable(run.metric or '')} " if named else ""
    return f"{name}{number_text(run.best_value)} at {run.best_step:,}"


def _time_since_change_text(run: RunSummary, now: datetime) -> str:
    seconds = max(0, int((now - datetime.fromisoformat(run.changed_at)).total_seconds()))
    unit, size = next((each for each in PERIODS if seconds >= each[1]), ("s", 1))
    return f"{seconds // size} {unit} ago"


def _early_end_reasons(found: RunList) -> Iterator[RenderableType]:
    # Where a script ended, the table's columns say all of it.
    told = [run for run in found.runs if run.why and not run.why.startswith(SCRIPT_ENDED)]
    if told:
        yield Text()
    for run in told:
        yield Text(f"{printable(run.directory)}: {run.state}, {printable(run.why or '')}")


def _comparison_command_hint(found: RunList) -> Iterator[RenderableType]:
    logged = [run for run in found.runs if run.step]
    if len(logged) > 1:
        names = " ".join(shlex.quote(run.directory) for run in logged[:COMPARED])
        yield Text()
        yield Text(f"Compare them: truestep report {printable(names)}", "dim")


def printable(text: str) -> str:
    """Return a text without what a terminal would take for a command; a folder may be called anything."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
