# SPDX-License-Identifier: Apache-2.0
"""What a report says of the experiments: which relations held, which are broken, and which could not be tried or do not apply."""

from typing import Any

from truestep.core.text_formatting import plural
from truestep.doctor.experiments.experiments import Experiments


def experiment_report_lines(experiments: Experiments, *, abstentions: bool = False) -> list[str]:
    """Return the lines of a report; none where no relation was wanted. `abstentions`: also why relations do not apply."""
    if not experiments.records:
        return []
    codes: dict[str, list[str]] = {"held": [], "broken": [], "not tried": [], "not applicable": []}
    for code in experiments.records:
        codes[experiments.outcome(code)[0]].append(code)
    held, broken, rest, elsewhere = codes.values()
    cost = f"{plural(experiments.budget.num_children, 'child', 'children')} in {experiments.seconds:.2f} s"
    reasons = _codes_by_reason(experiments, rest)
    why = f": {reasons.popitem()[0]}" if len(reasons) == 1 else ""
    parts = [
        f"{plural(len(held), 'relation')} {'holds' if len(held) == 1 else 'hold'}",
        f"{len(broken)} broken{_codes_in_brackets(broken)}",
        f"{len(rest)} not tried{why}",
    ]
    if why and not (held or broken):  # a ts.Run trains here, say
        parts = [f"none of {plural(len(rest), 'relation')} was tried{why}"]
    if elsewhere:
        parts.append(f"{len(elsewhere)} {'does' if len(elsewhere) == 1 else 'do'} not apply")
    more = [f"not tried: {', '.join(each)}: {reason}" for reason, each in reasons.items()]
    if abstentions:
        more += [
            f"does not apply: {', '.join(each)}: {reason}"
            for reason, each in _codes_by_reason(experiments, elsewhere).items()
        ]
    return [f"experiments: {'; '.join(parts)} ({cost})", *more]


def _codes_in_brackets(codes: list[str]) -> str:
    return f" ({', '.join(codes)})" if codes else ""


def _codes_by_reason(experiments: Experiments, codes: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for code in codes:
        found.setdefault(experiments.why_not_tried(code) or "the script was over before", []).append(code)
    return found


def experiments_document(experiments: Experiments) -> dict[str, Any]:
    """Return what the JSON report says of them."""
    return {
        "relations": {
            code: {
                "outcome": (told := experiments.outcome(code))[0].replace(" ", "_"),
                "num_held": record.held,
                "num_broken": len(record.broken),
                "reason": told[1],
            }
            for code, record in experiments.records.items()
        },
        "num_children": experiments.budget.num_children,
        "elapsed_seconds": round(experiments.seconds, 4),
    }
