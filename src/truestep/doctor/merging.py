# SPDX-License-Identifier: Apache-2.0
"""Joins what reading a script found with what its run showed."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from truestep.doctor.catalogue import checks
from truestep.doctor.check import SourceCheck
from truestep.doctor.finding import Finding, Place


def merge_findings(ran: Sequence[Finding], read: Sequence[Finding]) -> list[Finding]:
    """Return the findings of both ways; what reading found and the run bore out is one finding."""
    left = list(ran)
    found = []
    for finding in read:
        same = [each for each in left if _is_same_fault(finding, each)]
        left = [each for each in left if each not in same]
        found.append(_add_run_evidence(finding, same) if same else finding)
    return sorted([*found, *left], key=lambda each: each.order)


def _add_run_evidence(finding: Finding, same: Sequence[Finding]) -> Finding:
    """Return what reading found with what the run adds: its severity if that is graver, its figures, its words."""
    gravest = min((finding, *same), key=lambda each: each.severity.rank).severity
    own = next((each for each in same if each.code == finding.code), None)
    evidence: dict[str, Any] = dict(finding.evidence)
    message = finding.message
    if own is not None:
        evidence |= own.evidence
        message = own.message if own.evidence.get("made_at") else message  # it says more
    if others := sorted({each.code for each in same} - {finding.code}):
        evidence["seen_as"] = others
    return replace(finding, message=message, severity=gravest, evidence=evidence, seen="read and ran")


def _is_same_fault(read: Finding, ran: Finding) -> bool:
    """Tell whether the run shows, by the same check or by what the mistake does, what reading found there."""
    check = checks().get(read.code)
    shows_as = check.shows_as if check is not None and issubclass(check, SourceCheck) else ()
    if ran.code != read.code and ran.code not in shows_as:
        return False
    return any(_are_near_places(each, read.place) for each in _fault_places(ran))


def _fault_places(ran: Finding) -> Iterator[Place]:
    """Yield where a mistake did harm, and where the value was made that did it."""
    yield ran.place
    if (made_at := Place.of_text(str(ran.evidence.get("made_at") or ""))) is not None:
        yield made_at


def _are_near_places(first: Place, second: Place) -> bool:
    same_file = Path(first.path).resolve() == Path(second.path).resolve()
    return same_file and first.cell == second.cell and abs(first.line - second.line) <= 3
