# SPDX-License-Identifier: Apache-2.0
"""The report as a person reads it in a terminal."""

from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from truestep.doctor.read import SourceReading
from truestep.doctor.reporting.findings import counted, printable, show_findings

if TYPE_CHECKING:
    from truestep.doctor.report import RunReport


def show_reading(reading: SourceReading, console: Console) -> None:
    """Print what reading source files gave."""
    show_findings(reading.findings, reading.lines, console)
    for path, reason in reading.unreadable:
        console.print(
            Text.assemble((printable(path), "bold"), f"  not read: {printable(reason)}"), soft_wrap=True
        )
    for failure in reading.failures:
        text = f"  check {failure.code} failed on it: {failure.error} (our mistake; the other checks went on)"
        console.print(Text.assemble((printable(failure.path), "bold"), text), soft_wrap=True)
    left_out = len({path for path, _ in reading.unreadable} - {each.place.path for each in reading.findings})
    num_read = max(reading.num_files - left_out, 0)
    files = f"{num_read} file{'s' if num_read != 1 else ''} read in {reading.seconds:.2f} s"
    extra = f"; {len(reading.abstentions)} times a check could not tell" if reading.abstentions else ""
    hidden = f"; {reading.num_hidden} hidden by comments or the baseline" if reading.num_hidden else ""
    console.print(Text.assemble(counted(reading.findings), f" · {files}{extra}{hidden}"))


def show_run(report: "RunReport", console: Console) -> None:
    """Print what reading and running a script gave."""
    console.rule("truestep doctor", style="dim")
    show_findings(report.findings, report.lines, console)
    for place, text in report.outcome.warnings[:5]:
        console.print(Text.assemble((str(place), "bold"), f"  torch warned: {text}"))
    if report.outcome.error:
        where = f"{report.outcome.error_place}  " if report.outcome.error_place else ""
        console.print(
            Text.assemble((where, "bold"), f"the script raised {report.outcome.error.splitlines()[0]}")
        )
    for failure in report.failures:
        console.print(f"check {failure.code} failed: {failure.error} (our mistake; the run went on)")
    console.print(Text.assemble(counted(report.findings)))
    for line in report.watched():
        console.print(Text(line, "dim"))
