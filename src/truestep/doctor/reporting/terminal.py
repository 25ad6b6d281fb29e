# SPDX-License-Identifier: Apache-2.0
"""The reports of `truestep read` and `truestep doctor` as a person reads them in a terminal."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from truestep.core.result_display import print_results
from truestep.core.rich_imports import Console, RenderableType, Text
from truestep.core.text_formatting import wrap_line
from truestep.doctor.finding import Abstention, Finding
from truestep.doctor.fixing import FixedFile
from truestep.doctor.reading_result import SourceReading
from truestep.doctor.reporting.finding_layout import counted_findings, printable_finding_text, render_findings

if TYPE_CHECKING:
    from truestep.doctor.report import WatchedRunReport


def show_reading(
    reading: SourceReading, console: Console, *, abstentions: bool = False, nothing_since: str = ""
) -> None:
    """Print what reading source files gave; with `abstentions`, also where a check could not tell.

    `nothing_since`: why nothing could be found, which is said first.
    """
    if nothing_since:
        console.print(f"What was read {nothing_since}. Name a script that trains: truestep read train.py")
        return
    print_results(render_findings(reading.findings, reading.lines), console)
    print_results(render_abstentions(reading.abstentions) if abstentions else (), console)
    for path, reason in reading.unreadable:
        _print_at_place(console, path, f"not read: {printable_finding_text(reason)}")
    for failure in reading.failures:
        text = f"check {failure.code} failed on it: {failure.error} (our mistake; the other checks went on)"
        _print_at_place(console, failure.path, text)
    files = f"{reading.num_read} file{'s' if reading.num_read != 1 else ''} read in {reading.seconds:.2f} s"
    unsure = len(reading.abstentions)
    extra = f"; {unsure} times a check could not tell (--show-abstentions)" if unsure else ""
    hidden = f"; {reading.num_hidden} hidden by comments or the baseline" if reading.num_hidden else ""
    if reading.num_read:
        console.print(Text.assemble(counted_findings(reading.findings), f" · {files}{extra}{hidden}"))
    if not reading.num_files:
        console.print("There is nothing to read here: no .py, .ipynb or Markdown file.")
    elif not reading.num_read:
        console.print("No file could be read, so nothing was looked for.")
    elif not reading.findings:
        console.print("Nothing found by reading; `truestep doctor FILE.py` runs a script and watches it.")


def show_fixed(fixed: Sequence[FixedFile], console: Console) -> None:
    """Print what `--fix` has changed, and which files it left."""
    for each in fixed:
        if each.left:
            _print_at_place(console, each.path, f"not fixed: {each.left}")
        else:
            styles = {"-": "red", "+": "green", "@": "cyan"}
            shown = [
                Text(printable_finding_text(line.rstrip("\r\n")), styles.get(line[0], ""))
                for line in each.diff()
            ]
            print_results([Text("\n").join(shown)], console)
    made = [finding for each in fixed if not each.left for finding in each.findings]
    if made:
        codes = ", ".join(f"{code} ({count})" for code, count in Counter(each.code for each in made).items())
        files = len({each.path for each in fixed if not each.left})
        console.print(f"Fixed {len(made)} in {files} file{'s' if files != 1 else ''}: {codes}\n")


def _print_at_place(console: Console, place: object, text: str) -> None:
    console.print(Text.assemble((printable_finding_text(str(place)), "bold"), f"  {text}"), soft_wrap=True)


def print_concise_findings(findings: Sequence[Finding], console: Console) -> None:
    """Print a line for each finding, as compilers do: path:line:column: severity CODE message."""
    for each in sorted(findings, key=lambda each: (each.place, each.code)):
        place = f"{each.place}:{each.place.column}" if each.place.width else str(each.place)
        text = f"{printable_finding_text(place)}: {each.severity.value} {each.code} {each.message}"
        console.print(Text(text), soft_wrap=True)


def show_run(
    report: "WatchedRunReport", console: Console, *, beside_script: bool, abstentions: bool = False
) -> None:
    """Print what reading and running a script gave; beside the script's own output, which has torch's warnings already."""
    console.rule("truestep doctor", style="dim")
    print_results(render_findings(report.findings, report.lines), console)
    found = {(each.place.path, each.place.line) for each in report.findings}
    for place, text in report.outcome.warnings[:5]:
        if not beside_script:
            _print_at_place(console, place, f"torch warned: {text}")
        elif (place.path, place.line) not in found:
            _print_at_place(console, place, "torch warned of it, as shown above")
    if report.outcome.error:
        _print_at_place(
            console,
            report.outcome.error_place or "",
            f"the script raised {report.outcome.error.splitlines()[0]}",
        )
    for failure in report.failures:
        console.print(f"check {failure.code} failed: {failure.error} (our mistake; the run went on)")
    if report.is_unparsed:
        console.print("Python can't parse the script, so nothing of it was run, read or watched.")
        return
    print_results(render_abstentions(report.reading.abstentions) if abstentions else (), console)
    is_blank = not report.findings and not report.has_steps
    console.print(Text("no step was watched", "yellow") if is_blank else counted_findings(report.findings))
    for line in report.watched(abstentions=abstentions):
        console.print(Text(wrap_line(line, console.width, hang=2), "dim"))


def render_abstentions(abstentions: Iterable[Abstention]) -> list[RenderableType]:
    """Return, by place, the checks that met their subject and could not tell, and why."""
    in_order = sorted(abstentions, key=lambda each: (each.place, each.code))
    return [
        Text.assemble(
            (printable_finding_text(str(each.place)), "bold"),
            f"  {each.code} can't tell: {printable_finding_text(each.reason)}",
        )
        for each in in_order
    ]
