# SPDX-License-Identifier: Apache-2.0
"""Explains error reports from public threads, and compares with what was written down before."""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from truestep.explainer.logs.explaining import explain_log

ROWS = Path(__file__).with_name("reports.jsonl")


def verdict(row: dict[str, Any], text: str) -> tuple[str, str]:
    """Return the verdict on one report, and the name of the error that was found."""
    main = explain_log(text).main
    explanation = main.explanation if main else None
    name = explanation.name if explanation else None
    if name != row["class"]:
        return ("missed" if name is None else "wrong"), str(name)
    said = f"{explanation.here} {explanation.fix}".lower() if explanation else ""
    named = not row["cause"] or any(word.lower() in said for word in row["cause"])
    return ("right" if named else "class alone"), str(name)


def main() -> None:
    """Print the verdicts of one half, or of both."""
    texts = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    halves = sys.argv[2:] or ["work", "held"]
    rows = [json.loads(line) for line in ROWS.read_text("utf-8").splitlines()]
    totals: Counter[tuple[str, str, str]] = Counter()
    for row in rows:
        if row["half"] in halves:
            found, name = verdict(row, texts[row["address"]])
            totals[row["half"], "listed" if row["class"] else "not listed", found] += 1
            if found != "right" and row["half"] == "work":  # the held half is counted, not read
                print(f"{found:12} {row['class']} → {name}  {row['address']}")
    for (half, listed, found), num in sorted(totals.items()):
        print(f"{half:6} {listed:10} {found:12} {num}")


if __name__ == "__main__":
    main()
