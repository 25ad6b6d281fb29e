# SPDX-License-Identifier: Apache-2.0
"""The cards as tables: one line a card where the screen is wide, two tables where it is not."""

from collections.abc import Iterator, Sequence

from truestep.core.rich_imports import Console, ConsoleOptions, RenderableType, Table, Text, box
from truestep.core.text_formatting import bytes_text
from truestep.machine.gpus.columns import IDENTITY, INDEX, LOAD, NAME, UNKNOWN, CardColumn, card_memory_text
from truestep.machine.gpus.read import GpuReport
from truestep.machine.gpus.records import Gpu, GpuProcess

WIDE_COLUMNS = 160


class GpuReportTable:
    """Draws a report, as wide as the screen allows."""

    def __init__(self, report: GpuReport) -> None:
        self.report = report

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        report = self.report
        if report.driver_version:
            cuda = report.cuda_version or "unknown"
            yield Text(f"driver {report.driver_version}, CUDA up to {cuda}\n", style="dim")
        if report.error:
            yield Text(f"No GPU to show: {report.error}.")
        if not report.gpus:
            return
        if options.max_width >= WIDE_COLUMNS:
            yield _card_table(report.gpus, (*LOAD, *IDENTITY), gap=2)
        else:
            yield _card_table(report.gpus, LOAD, gap=1)
            yield ""
            yield _card_table(report.gpus, (INDEX, *IDENTITY), gap=1)
        yield ""
        yield from _card_error_lines(report.gpus)
        yield from _mig_instance_table(report.gpus)
        yield from _process_table(report)


Cell = str | Text
Heading = tuple[str, bool]  # a title, and whether the column stands to the right


def gpu_table(
    headings: Sequence[Heading], rows: Sequence[Sequence[Cell]], *, flexible: int, gap: int = 2
) -> Table:
    """Return a table in this room's look; where the screen is narrow, only the column `flexible` shrinks."""
    table = Table(
        box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, gap - 1, 0, 0), header_style="dim"
    )
    for place, (title, right) in enumerate(headings):
        # Where a table is too wide rich shrinks all columns, and would cut numbers; so all but one have a least width.
        widest = max((len(line) for row in rows for line in str(row[place]).splitlines()), default=0)
        table.add_column(
            title,
            justify="right" if right else "left",
            no_wrap=place != flexible,
            overflow="fold",
            min_width=None if place == flexible else max(widest, len(title)),
        )
    for row in rows:
        table.add_row(*row)
    return table


def _card_table(cards: Sequence[Gpu], columns: Sequence[CardColumn], gap: int) -> Table:
    rows = [[Text(column.text(card), style=column.style(card)) for column in columns] for card in cards]
    flexible = columns.index(NAME) if NAME in columns else -1
    headings = [(column.heads[0], column.right) for column in columns]
    return gpu_table(headings, rows, flexible=flexible, gap=gap)


def _card_error_lines(cards: Sequence[Gpu]) -> Iterator[RenderableType]:
    for card in cards:
        if card.error:
            yield Text(f"card {card.index}: {card.error}\n", style="bold red")


def _mig_instance_table(cards: Sequence[Gpu]) -> Iterator[RenderableType]:
    rows = [(card, instance) for card in cards for instance in card.mig_instances]
    headings = [("#", True), ("MIG instance", False), ("Memory", True), ("UUID", False)]
    lines = [
        (
            str(card.index),
            (instance.name or UNKNOWN).rpartition("MIG ")[2],
            card_memory_text(instance.memory_used_bytes, instance.memory_total_bytes),
            instance.uuid or UNKNOWN,
        )
        for card, instance in rows
    ]
    if lines:
        yield gpu_table(headings, lines, flexible=1)
        yield ""


def _process_table(report: GpuReport) -> Iterator[RenderableType]:
    rows = [_process_cells(card, process) for card in report.gpus for process in card.processes or ()]
    if not rows:
        hidden = any(card.processes is None and not card.error for card in report.gpus)
        yield Text("the cards' processes can't be seen" if hidden else "no process uses a card", style="dim")
        return
    headings = [("#", True), ("PID", True), ("User", False), ("Memory", True), ("Started (UTC)", False)]
    yield gpu_table([*headings, ("Command", False)], rows, flexible=5)
    if report.pids_of_host:
        said = "The process numbers are the host's: this is a container. With --pid=host it would see names."
        yield Text(f"\n{said}", style="dim")


def _process_cells(card: Gpu, process: GpuProcess) -> tuple[Cell, ...]:
    return (
        str(card.index),
        str(process.pid),
        Text(process.user or UNKNOWN),
        bytes_text(process.memory_used_bytes),
        (process.started_at or UNKNOWN)[:16].replace("T", " "),
        process_command_text(process.command),
    )


def process_command_text(command: str | None) -> Text:
    """Return a command that is cut where the screen ends."""
    return Text(command or UNKNOWN, no_wrap=True, overflow="ellipsis")
