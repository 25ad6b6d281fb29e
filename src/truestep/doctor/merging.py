# SPDX-License-Identifier: Apache-2.0
"""Joins what reading a script found with what its run showed."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from truestep.doctor.finding import Finding, Place


def merge_findings(ran: Sequence[Finding], read: Sequence[Finding]) -> list[Finding]:
    """Return the findings of both ways; what reading found and the run bore out is one finding."""
    left = list(ran)
    found = []
    for finding in read:
        same = [each for each in left if each.code == finding.code and _near(each.place, finding.place)]
        if same:
            left = [each for each in left if each not in same]
            saw = same[0]
            message = saw.message if saw.evidence.get("made_at") else finding.message  # it says more
            evidence = {**finding.evidence, **saw.evidence}
            finding = replace(finding, message=message, evidence=evidence, seen="read and ran")
        found.append(finding)
    return sorted([*found, *left], key=lambda each: each.order)


def _near(first: Place, second: Place) -> bool:
    same_file = Path(first.path).resolve() == Path(second.path).resolve()
    return same_file and first.cell == second.cell and abs(first.line - second.line) <= 3
