# SPDX-License-Identifier: Apache-2.0
"""Findings as a person reads them in a terminal or notebook: by file, then once for each code why and what to write."""

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby

from truestep.core.rich_imports import Group, Padding, RenderableType, Table, Text
from truestep.core.text_formatting import printable_text
from truestep.doctor.check_page_urls import check_docs_address, check_help
from truestep.doctor.finding import Finding, Place, Severity
from truestep.doctor.reporting.evidence_wording import evidence_sentences

INDENT = 6
STYLES = {
    Severity.BUG: "bold red",
    Severity.RISK: "yellow",
    Severity.ADVICE: "cyan",
    Severity.QUESTION: "magenta",
}


def printable_finding_text(text: str) -> str:
    """Return a text in which characters that steer a terminal are written out."""
    return printable_text(text, keep="\t")


def render_findings(findings: Sequence[Finding], lines: Mapping[Place, str]) -> list[RenderableType]:
    """Return findings by file and line, then why and the fix of each code; `lines` are the lines they stand at."""
    in_order = sorted(findings, key=lambda each: (each.place, each.severity.rank, each.code))
    shown: list[RenderableType] = []
    for path, group in groupby(in_order, key=lambda each: each.place.path):
        # a path that is cut can't be clicked or searched for; only in a group does rich keep to that
        shown.append(
            Group(Text(printable_finding_text(path), "bold underline", no_wrap=True, overflow="ignore"))
        )
        found = list(group)
        widths = [max(map(len, words)) for words in zip(*(_head_cells(each) for each in found), strict=True)]
        shown += [_render_finding(each, lines.get(each.place), widths) for each in found]
        shown.append(Text())
    return [*shown, *_render_codes(findings)]


def _head_cells(finding: Finding) -> tuple[str, str, str]:
    return finding.place.within(), finding.severity.value, finding.code


def _render_finding(finding: Finding, line: str | None, widths: Sequence[int]) -> RenderableType:
    head = Table.grid(padding=(0, 2, 0, 0))
    for width in widths:
        head.add_column(no_wrap=True, min_width=width)
    style = STYLES[finding.severity]
    styles = ("bold", style, style)
    words = (Text(word, style) for word, style in zip(_head_cells(finding), styles, strict=True))
    head.add_row(*words, Text(finding.message))
    parts: list[Text] = []
    change = finding.replacement
    if line and line.strip():
        code = _underlined_line(finding.place, line)
        if (
            change is None
            or "\n" in code.plain
            or line.strip() not in {each[2:].strip() for each in change.diff}
        ):
            parts.append(code)  # else the change below shows it
    if said := evidence_sentences(finding.evidence):
        parts.append(Text(said))
    if change is not None:
        parts.append(_dedented_diff(change.diff))
    return Group(Padding(head, (0, 0, 0, 2), expand=False), *map(_indent_part, parts))


def _indent_part(part: Text) -> RenderableType:
    """Return a part of a finding behind blanks; code is never cut, which rich's own padding would do."""
    if not part.no_wrap:
        return Padding(part, (0, 0, 0, INDENT), expand=False)
    return _unwrapped_code("\n").join(Text.assemble(" " * INDENT, line) for line in part.split("\n"))


def _underlined_line(place: Place, line: str) -> Text:
    """Return a line of code; where the finding is about a part of it, that is underlined."""
    code = printable_finding_text(line.expandtabs(1).rstrip())
    bare = code.lstrip()
    shown = _unwrapped_code(bare, "bold")
    before = place.column - 1 - (len(code) - len(bare))
    width = min(place.width, len(bare) - before)
    if before >= 0 and 0 < width < len(bare):  # to underline all of it says nothing
        shown.append(f"\n{' ' * before}{'^' * width}", "red")
    return shown


def _dedented_diff(lines: Sequence[str]) -> Text:
    """Return the lines of a diff with their common indentation taken off."""
    bare = textwrap.dedent("\n".join(line[2:] for line in lines)).split("\n")
    styles = {"-": "red", "+": "green", " ": "dim"}
    shown = [
        Text(f"{line[0]} {printable_finding_text(text)}", styles[line[0]])
        for line, text in zip(lines, bare, strict=True)
    ]
    return _unwrapped_code("\n").join(shown)


def _unwrapped_code(text: str, style: str = "") -> Text:
    """Return a text of code, whose lines are neither wrapped nor cut, so that they can be copied."""
    return Text(text, style, no_wrap=True, overflow="ignore")


def _render_codes(findings: Sequence[Finding]) -> list[RenderableType]:
    """Return for each code how often it was found, why it matters and the fix, the gravest first."""
    first: dict[str, Finding] = {}
    for each in sorted(findings, key=lambda each: each.order):
        first.setdefault(each.code, each)
    shown: list[RenderableType] = []
    for code, example in first.items():
        same = [each for each in findings if each.code == code]
        head = Text.assemble(
            (code, STYLES[example.severity]), f"  {example.name}  ", *_severity_counts(same), no_wrap=True
        )
        reasons = Table.grid(padding=(0, 2, 0, 0))
        reasons.add_row(Text("why", "dim"), Text(example.why))
        reasons.add_row(Text("fix", "dim"), Text(example.fix))
        address = check_docs_address(code)
        reasons.add_row(
            Text("see", "dim"), Text(check_help(code), f"dim link {address}" if address else "dim")
        )
        shown += [head, Padding(reasons, (0, 0, 0, 2), expand=False)]
    if shown:
        shown.append(Text())
    return shown


def _severity_counts(findings: Sequence[Finding]) -> list[Text | str]:
    """Return "2 bugs, 1 risk" in pieces, with the colours of the severities."""
    counts = Counter(each.severity for each in findings)
    parts: list[Text | str] = []
    for severity in Severity:
        if count := counts[severity]:
            plural = severity.value if severity is Severity.ADVICE or count == 1 else f"{severity.value}s"
            parts += [", "] if parts else []
            parts.append(Text(f"{count} {plural}", STYLES[severity]))
    return parts


def counted_findings(findings: Sequence[Finding]) -> Text:
    """Return "2 bugs, 1 risk" with the colours of the severities."""
    return Text.assemble(*_severity_counts(findings)) if findings else Text("nothing found", "green")


def render_watched(
    findings: Sequence[Finding], lines: Mapping[Place, str], num_steps: int, seconds: float
) -> list[RenderableType]:
    """Return what a watch in a script or notebook has found so far, in so many steps and at what cost."""
    steps = (
        f" · {num_steps} optimizer step{'s' if num_steps != 1 else ''}, watched at a cost of {seconds:.2f} s"
    )
    return [*render_findings(findings, lines), Text.assemble(counted_findings(findings), steps)]
