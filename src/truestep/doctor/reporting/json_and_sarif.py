# SPDX-License-Identifier: Apache-2.0
"""The report as JSON, and as SARIF 2.1.0 for code hosts and editors."""

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import quote

from truestep.core.text_formatting import printable_text
from truestep.doctor.catalogue import checks
from truestep.doctor.check_page_urls import check_docs_address, check_help
from truestep.doctor.finding import Finding, Severity
from truestep.doctor.reading_result import SourceReading

SCHEMA_VERSION = 1
_LEVELS = {
    Severity.BUG: "error",
    Severity.RISK: "warning",
    Severity.ADVICE: "note",
    Severity.QUESTION: "note",
}


def reading_document(reading: SourceReading) -> dict[str, Any]:
    """Return what `truestep read --output json` prints."""
    return {
        "schema_version": SCHEMA_VERSION,
        "findings": [finding.to_dict() for finding in reading.findings],
        "abstentions": [each.to_dict() for each in reading.abstentions],
        "failures": [each.to_dict() for each in reading.failures],
        "unreadable": [{"path": path, "reason": reason} for path, reason in reading.unreadable],
        "num_files": reading.num_files,
        "num_hidden": reading.num_hidden,
        "elapsed_seconds": round(reading.seconds, 4),
    }


def sarif_document(findings: Sequence[Finding]) -> dict[str, Any]:
    """Return the findings as a SARIF log with one run; paths are relative to where it was started."""
    codes = sorted({finding.code for finding in findings})
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "truestep",
                        "version": version("truestep"),
                        "rules": [_sarif_rule(code) for code in codes],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "results": [_sarif_result(finding, codes) for finding in findings],
            }
        ],
    }


def _sarif_rule(code: str) -> dict[str, Any]:
    check = checks()[code]
    page = check.page()
    address = check_docs_address(
        code
    )  # the format asks for a whole address: without one there is none to give
    return {
        "id": code,
        "name": check.name(),
        "shortDescription": {"text": page.summary},
        "fullDescription": {"text": page.why},
        "help": {"text": f"{page.fix} See: {check_help(code)}", "markdown": page.markdown()},
        **({"helpUri": address} if address else {}),
    }


def _sarif_result(finding: Finding, codes: list[str]) -> dict[str, Any]:
    place = finding.place
    return {
        "ruleId": finding.code,
        "ruleIndex": codes.index(finding.code),
        "level": _LEVELS[finding.severity],
        "message": {"text": f"{finding.message} {finding.fix}"},
        "locations": [_sarif_location(place.path, {"startLine": place.line, "startColumn": place.column})],
        **_sarif_related_locations(finding),
        "properties": {
            "severity": finding.severity.value,
            "seen": finding.seen,
            **({"cell": place.cell} if place.cell else {}),
        },
        **_sarif_fixes(finding),
    }


def _sarif_location(path: str, region: dict[str, int]) -> dict[str, Any]:
    return {"physicalLocation": {"artifactLocation": {"uri": _file_uri(path)}, "region": region}}


def _sarif_related_locations(finding: Finding) -> dict[str, Any]:
    """Return the line where what is wrong was made, if it is another than where it does harm."""
    path, _, line = str(finding.evidence.get("made_at") or "").rpartition(":")
    if not line.isdigit():
        return {}
    message = {"text": "It is made here."}
    return {"relatedLocations": [{**_sarif_location(path, {"startLine": int(line)}), "message": message}]}


def _sarif_fixes(finding: Finding) -> dict[str, Any]:
    if finding.replacement is None or finding.place.cell:  # the lines of a cell are no lines of the file
        return {}
    changes = [
        {
            "deletedRegion": {
                "startLine": edit.line,
                "startColumn": edit.column,
                "endLine": edit.end_line,
                "endColumn": edit.end_column,
            },
            "insertedContent": {"text": edit.text},
        }
        for edit in finding.replacement.edits
    ]
    location = {"uri": _file_uri(finding.place.path)}
    change = {"artifactLocation": location, "replacements": changes}
    return {"fixes": [{"description": {"text": finding.fix}, "artifactChanges": [change]}]}


def workflow_commands(findings: Sequence[Finding]) -> list[str]:
    """Return a line for each finding that GitHub's workflows show beside the code of a pull request."""
    commands = {"error": "error", "warning": "warning", "note": "notice"}
    lines = []
    for each in findings:
        place = each.place
        at = {
            "file": place.path,
            "line": place.line,
            "col": place.column,
            "title": f"{each.code} {each.name}",
        }
        where = ",".join(f"{key}={_escape_command_text(str(value), ',:')}" for key, value in at.items())
        text = _escape_command_text(f"{each.message} {each.fix} See: {check_help(each.code)}")
        lines.append(f"::{commands[_LEVELS[each.severity]]} {where}::{text}")
    return lines


def _escape_command_text(text: str, more: str = "") -> str:
    shown = printable_text(text, keep="\r\n")
    return "".join(f"%{ord(each):02X}" if each in "%\r\n" + more else each for each in shown)


def _file_uri(path: str) -> str:
    given = Path(path)
    if given.is_absolute() and given.is_relative_to(Path.cwd()):
        given = given.relative_to(Path.cwd())
    return given.as_uri() if given.is_absolute() else quote(given.as_posix())
