# SPDX-License-Identifier: Apache-2.0
"""Runs in a terminal: listed, and side by side."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from truestep.checkpoints.foreign_formats import describe_path_without_run
from truestep.core.rich_imports import Group, RenderableType, Table, Text
from truestep.core.text_formatting import bytes_text, duration_text, number_text
from truestep.report.compare import RunComparison
from truestep.report.listing import RunList, RunSummary
from truestep.report.settings_tables import setting_text
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
            f"There are no runs in {_printable(found.folder)}.{_printable(instead) or ' A script with ts.Run(...) makes one.'}"
        )
    metrics = {run.metric for run in found.runs if run.metric}
    metric = metrics.pop() if len(metrics) == 1 else None
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("run", overflow="fold")
    for heading in ("state", "step", f"best {_printable(metric)}" if metric else "best", "size", "changed"):
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
        table.add_row(Text(_printable(run.directory)), state, *map(Text, cells))
    return Group(table, *_early_end_reasons(found), *_comparison_command_hint(found))


def run_comparison_table(found: RunComparison) -> RenderableType:
    """Return what differs and the best values, a column for each run; of one run the best values alone."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("", *map(_printable, found.runs)):
        table.add_column(heading, overflow="fold")
    for each in found.differences:
        table.add_row(
            Text(_printable(each.setting)), *(Text(_printable(setting_text(value))) for value in each.values)
        )
    if len(found.runs) > 1 and not found.differences:
        table.add_row(
            Text("settings"),
            Text("the same" if not found.circumstances else "the same, but for what stands below"),
        )
    for best in found.best:
        cells = [f"{number_text(each.value)} at {each.step:,}" if each else "-" for each in best.values]
        styles = ["bold green" if place == best.best_run else "" for place in range(len(cells))]
        table.add_row(Text(f"best {_printable(best.metric)}"), *map(Text, cells, styles))
    table.add_row(Text("steps"), *(Text(f"{step:,}") for step in found.steps))
    table.add_row(Text("time"), *(Text(duration_text(seconds)) for seconds in found.elapsed_seconds))
    return Group(*_best_run_sentence(found), table, *_other_differences(found))


def _other_differences(found: RunComparison) -> Iterator[RenderableType]:
    """Name what else differs; the page shows it whole."""
    if found.circumstances:
        names = ", ".join(_printable(each.setting) for each in found.circumstances)
        yield Text(f"Also different (values on the page): {names}")


def _best_run_sentence(found: RunComparison) -> Iterator[RenderableType]:
    """Name the best run in words: colours are not seen by everybody, nor in a pipe."""
    if len(found.runs) > 1 and found.best:
        first = found.best[0]
        value = first.values[first.best_run]
        assert value is not None
        where = f"{number_text(value.value)} at step {value.step:,}"
        yield Text(
            f"Best {_printable(first.metric)}: {_printable(found.runs[first.best_run])}, {where}", "bold"
        )
        yield Text()


def _best_value_text(run: RunSummary, *, named: bool) -> str:
    if run.best_value is None or run.best_step is None:
        return "-"
    name = f"{_printable(run.metric or '')} " if named else ""
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
        yield Text(f"{_printable(run.directory)}: {run.state}, {_printable(run.why or '')}")


def _comparison_command_hint(found: RunList) -> Iterator[RenderableType]:
    logged = [run for run in found.runs if run.step]
    if len(logged) > 1:
        names = " ".join(_shell_quote(run.directory) for run in logged[:COMPARED])
        yield Text()
        yield Text(f"Compare them: truestep report {_printable(names)}", "dim")


def _shell_quote(name: str) -> str:
    import shlex

    return shlex.quote(name)


def _printable(text: str) -> str:
    """Return a text without what a terminal would take for a command; a folder may be called anything."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
