# SPDX-License-Identifier: Apache-2.0
"""What may spoil a run, before everything else: the doctor's findings, and layers that do not learn."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from truestep.core.charts.markup import Html, html_tag
from truestep.report.record import ReportedRun

HEADINGS = ("finding", "where", "what", "fix")


class _Row(NamedTuple):
    finding: str
    where: str
    what: str
    fix: str


def report_findings(record: ReportedRun) -> list[_Row]:
    """Return what was found in a run: in its code, then in its layers."""
    return [*map(_of_doctor, record.findings), *_of_layers(record.looks)]


def report_findings_table(found: Sequence[tuple[str | None, _Row]]) -> Html:
    """Return findings as a table; each with its run, where there are several."""
    several = any(run is not None for run, _ in found)
    headings = (*(("run",) if several else ()), *HEADINGS)
    head = html_tag("tr", *(html_tag("th", word, scope="col") for word in headings))
    rows = (
        html_tag(
            "tr",
            html_tag("th", run, scope="row") if several else None,
            html_tag("th", row.finding, scope="row"),
            *(html_tag("td", text) for text in row[1:]),
        )
        for run, row in found
    )
    return html_tag("table", html_tag("thead", head), html_tag("tbody", *rows), class_="choices")


def _of_doctor(finding: Mapping[str, Any]) -> _Row:
    return _Row(
        f"{finding.get('severity')} {finding.get('code')}",
        f"{finding.get('path')}:{finding.get('line')}",
        _text(finding.get("message")),
        _text(finding.get("fix")),
    )


def _of_layers(looks: Sequence[dict[str, Any]]) -> Iterator[_Row]:
    for look in looks:
        for each in look["findings"]:
            if isinstance(each, dict):
                message, advice = _text(each.get("message")), _text(each.get("advice"))
                yield _Row("layer", f"step {each.get('step')}", f"{message}.", advice)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "–"
