# SPDX-License-Identifier: Apache-2.0
"""The report as a person reads it in a terminal."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from truestep.doctor.finding import Finding, Place, Severity
from truestep.doctor.reading import Reading

if TYPE_CHECKING:
    from truestep.doctor.report import RunReport
    from truestep.doctor.watch import Watch

INDENTED = (0, 0, 0, 4)
LONG_PLACE = 36  # characters; beyond them it has a line of its own, to stay whole
STYLES = {
    Severity.BUG: "bold red",
    Severity.RISK: "yellow",
    Severity.ADVICE: "cyan",
    Severity.QUESTION: "magenta",
}


def printable(text: str) -> str:
    """Return a text in which characters that steer a terminal are written out."""
    return "".join(each if each.isprintable() or each == "\t" else repr(each)[1:-1] for each in text)


def show_finding(finding: Finding, line: str | None) -> RenderableType:
    """Return one finding: where, what, the line, the evidence, why, and the fix."""
    place = printable(str(finding.place))
    head = Text.assemble(
        (place, "bold"),
        "  " if len(place) < LONG_PLACE else "\n    ",
        (finding.severity.value, STYLES[finding.severity]),
        " ",
        (finding.code, STYLES[finding.severity]),
        f"  {finding.name}",
        no_wrap=True,
        overflow="ignore",  # a path that is cut can't be clicked or searched for
    )
    parts: list[RenderableType] = [head, Padding(Text(finding.message), INDENTED, expand=False)]
    if line and line.strip():
        shown = Table.grid()
        shown.add_row(Text(f"{finding.place.line} │ ", "bold"), Text(printable(line.strip()), "bold"))
        parts.append(Padding(shown, INDENTED, expand=False))
    reasons = Table.grid(padding=(0, 2, 0, 0))
    if finding.evidence:
        seen = ", ".join(
            f"{key.replace('_', ' ')} {_value(value)}" for key, value in finding.evidence.items()
        )
        reasons.add_row("seen", Text(seen))
    reasons.add_row("why", Text(finding.why))
    reasons.add_row("fix", Text(finding.fix))
    if finding.replacement is not None:
        reasons.add_row("", _diff(finding.replacement.diff))
    return Group(*parts, Padding(reasons, INDENTED, expand=False), Text())


def _diff(lines: Sequence[str]) -> Text:
    """Return the lines of a diff with their common indentation taken off."""
    bare = textwrap.dedent("\n".join(line[2:] for line in lines)).split("\n")
    styles = {"-": "red", "+": "green", " ": "dim"}
    shown = [
        Text(f"{line[0]} {printable(text)}", styles[line[0]]) for line, text in zip(lines, bare, strict=True)
    ]
    return Text("\n").join(shown)


def _value(value: object) -> str:
    if isinstance(value, list) and any(isinstance(each, float) for each in value):
        return f"[{', '.join(map(_value, value))}]"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def counted(findings: Sequence[Finding]) -> Text:
    """Return "2 bugs, 1 risk" with the colours of the severities."""
    parts = []
    for severity in Severity:
        count = sum(finding.severity is severity for finding in findings)
        if count:
            plural = severity.value if severity is Severity.ADVICE or count == 1 else f"{severity.value}s"
            parts.append(Text(f"{count} {plural}", STYLES[severity]))
    return Text(", ").join(parts) if parts else Text("nothing found", "green")


def show_reading(reading: Reading, console: Console) -> None:
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


def show_findings(findings: Sequence[Finding], lines: Mapping[Place, str], console: Console) -> None:
    """Print findings, the gravest first."""
    for finding in sorted(findings, key=lambda each: each.order):
        _put(show_finding(finding, lines.get(finding.place)), console)


def _put(shown: RenderableType, console: Console) -> None:
    """Print it; to a file without the blanks that fill up each line."""
    if console.is_terminal or console.is_jupyter:
        console.print(shown, crop=False)
        return
    with console.capture() as captured:
        console.print(shown, crop=False)
    console.file.write("\n".join(line.rstrip() for line in captured.get().split("\n")))


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


def render_watch(watch: "Watch") -> list[RenderableType]:
    """Return what a watch in a script or notebook has found so far."""
    shown: list[RenderableType] = [
        show_finding(each, None) for each in sorted(watch.findings, key=lambda f: f.order)
    ]
    steps = f" · {watch.scene.num_steps} optimizer steps watched, at a cost of {watch.seconds:.2f} s"
    return [*shown, Text.assemble(counted(watch.findings), steps)]
