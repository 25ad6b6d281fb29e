# SPDX-License-Identifier: Apache-2.0
"""Writes what the beds of `work/beds.jsonl` gave into the Evidence of the checks' pages: python evidence.py E F G H I K."""

import json
import re
import sys
import textwrap
from pathlib import Path

HERE = Path(__file__).parent
CHECKS = HERE.parents[2] / "src/truestep/doctor/checks"
WIDTH = 108
EVIDENCE = re.compile(r"    Evidence: (.+?)\n(?=\n|    \"\"\"|\"\"\")", re.DOTALL)


def told(counts: list[list[int]]) -> str:
    """Return the counts of a code, its bugs and risks together, as pages say them."""
    true, false, debatable = (sum(each[at] for each in counts) for at in range(3))
    middle = f" {debatable} debatable," if debatable else ""
    return f"{true} true,{middle} {false} false"


def added(evidence: str, found: dict[str, str]) -> str:
    """Return the text of an Evidence with the beds' parts, each once, before what was read in 186 repositories."""
    parts = [part.strip() for part in " ".join(evidence.split()).rstrip(".").split(";")]
    parts = [part for part in parts if not any(part.startswith(f"{bed}:") for bed in found)]
    at = next((i for i, part in enumerate(parts) if part.startswith("186 ")), len(parts))
    parts[at:at] = [f"{bed}: {counts}" for bed, counts in found.items()]
    return "; ".join(parts) + "."


def main(names: list[str]) -> None:
    """Change each check's file whose code the beds have counts of."""
    rows = [json.loads(line) for line in (HERE / "work/beds.jsonl").read_text().splitlines()]
    beds = {row["bed"]: row for row in rows if row["bed"] in names}
    for path in sorted(CHECKS.rglob("*.py")):
        text = path.read_text()
        code = re.search(r'^    code = "(\w+)"', text, re.MULTILINE)
        page = EVIDENCE.search(text)
        if code is None or page is None:
            continue
        counts = {
            f"bed {name}": [row[kind][code[1]] for kind in ("bug", "risk") if code[1] in row[kind]]
            for name, row in beds.items()
        }
        found = {bed: told(each) for bed, each in counts.items() if each}
        if found:
            new = textwrap.fill(
                f"Evidence: {added(page[1], found)}", WIDTH, break_long_words=False, break_on_hyphens=False
            )
            path.write_text(text.replace(page[0], textwrap.indent(new, "    ") + "\n"))


if __name__ == "__main__":
    main(sys.argv[1:])
