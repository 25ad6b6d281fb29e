# SPDX-License-Identifier: Apache-2.0
"""What a report says of the experiments: which relations held, which are broken, and which could not be tried."""

from typing import Any

from truestep.core.wording import counted
from truestep.doctor.experiments.experiments import Experiments


def experiments_told(experiments: Experiments) -> list[str]:
    """Return the lines of a report; none where no relation was wanted."""
    if not experiments.records:
        return []
    codes: dict[str, list[str]] = {"held": [], "broken": [], "not tried": []}
    for code, record in experiments.records.items():
        codes[record.outcome].append(code)
    held, broken, rest = (codes[each] for each in ("held", "broken", "not tried"))
    cost = f"{counted(experiments.budget.num_children, 'child', 'children')} in {experiments.seconds:.2f} s"
    reasons = _reasons(experiments, rest)
    why = f": {reasons.popitem()[0]}" if len(reasons) == 1 else ""
    parts = [
        f"{counted(len(held), 'relation')} {'holds' if len(held) == 1 else 'hold'}",
        f"{len(broken)} broken{_listed(broken)}",
        f"{len(rest)} not tried{why}",
    ]
    more = [f"not tried: {', '.join(each)}: {reason}" for reason, each in reasons.items()]
    return [f"experiments: {'; '.join(parts)} ({cost})", *more]


def _listed(codes: list[str]) -> str:
    return f" ({', '.join(codes)})" if codes else ""


def _reasons(experiments: Experiments, codes: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for code in codes:
        found.setdefault(experiments.why_not_tried(code), []).append(code)
    return found


def experiments_document(experiments: Experiments) -> dict[str, Any]:
    """Return what the JSON report says of them."""
    return {
        "relations": {
            code: {
                "outcome": record.outcome.replace(" ", "_"),
                "num_held": record.held,
                "num_broken": len(record.broken),
                "reason": experiments.why_not_tried(code) if record.outcome == "not tried" else None,
            }
            for code, record in experiments.records.items()
        },
        "num_children": experiments.budget.num_children,
        "elapsed_seconds": round(experiments.seconds, 4),
    }
