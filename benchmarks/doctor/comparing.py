# SPDX-License-Identifier: Apache-2.0
"""What was found beside what is there: hits, misses, remarks and alarms."""

from dataclasses import dataclass, field

NEAR = 3


@dataclass
class Comparison:
    """One script's findings, sorted."""

    name: str
    hits: list = field(default_factory=list)  # (fault, finding)
    misses: list = field(default_factory=list)  # faults
    remarks: list = field(default_factory=list)  # findings that are right, and no fault of the list
    alarms: list = field(default_factory=list)  # findings that nothing in the list bears out


def compare(name, truth, findings):
    """Sort the findings of one script.

    One fault may be reported at several of its lines, and by several checks: all of them are right.
    """
    result = Comparison(name)
    found = [False] * len(truth.get("faults", []))
    for finding in findings:
        matched = [i for i, fault in enumerate(truth.get("faults", [])) if meant(fault, finding)]
        for index in matched:
            found[index] = True
            result.hits.append((truth["faults"][index], finding))
        known = [*truth.get("remarks", []), *truth.get("out_of_scope", [])]
        if not matched and any(meant(each, finding) for each in known):
            result.remarks.append(finding)
        elif not matched:
            result.alarms.append(finding)
    result.misses = [fault for fault, seen in zip(truth.get("faults", []), found, strict=True) if not seen]
    return result


def meant(entry, finding):
    near = any(abs(line - finding["line"]) <= NEAR for line in entry["lines"])
    return near and finding["code"] in entry.get("codes", [])


def unique(findings):
    """Leave out what reading and running both report."""
    seen = {}
    for finding in findings:
        seen.setdefault((finding["code"], finding["line"]), finding)
    return list(seen.values())
