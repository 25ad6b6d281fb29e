# SPDX-License-Identifier: Apache-2.0
"""What may spoil a run, before everything else: the doctor's findings, and layers that do not learn."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from truestep.core.charts.markup import Html
from truestep.report.run_record import RunRecord
from truestep.report.settings_tables import report_table

FindingRow = tuple[str, str, str, str]
HEADINGS = ("finding", "where", "what", "fix")


def report_findings(record: RunRecord) -> list[FindingRow]:
    """Return what was found in a run: in its code, then in its layers."""
    return [*map(_doctor_finding_row, record.findings), *_layer_finding_rows(record.looks)]


def report_findings_table(found: Sequence[tuple[str | None, FindingRow]]) -> Html:
    """Return findings as a table; each with its run, where there are several."""
    if all(run is None for run, _ in found):
        return report_table(HEADINGS, [row for _, row in found])
    return report_table(("run", *HEADINGS), [(run or "", *row) for run, row in found], num_labels=2)


def _doctor_finding_row(finding: Mapping[str, Any]) -> FindingRow:
    return (
        f"{finding.get('severity')} {finding.get('code')}",
        f"{finding.get('path')}:{finding.get('line')}",
        _text_or_dash(finding.get("message")),
        _text_or_dash(finding.get("fix")),
    )


def _layer_finding_rows(looks: Sequence[dict[str, Any]]) -> Iterator[FindingRow]:
    for look in looks:
        for each in look["findings"]:
            if isinstance(each, dict):
                message, advice = _text_or_dash(each.get("message")), _text_or_dash(each.get("advice"))
                yield ("layer", f"step {each.get('step')}", f"{message}.", advice)


def _text_or_dash(value: Any) -> str:
    return value if isinstance(value, str) else "–"
