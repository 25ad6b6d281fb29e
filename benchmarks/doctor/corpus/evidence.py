# SPDX-License-Identifier: Apache-2.0
"""Writes what the beds of `work/beds.jsonl` gave into the Evidence of the checks' pages: python evidence.py E F G H I K."""

import json
import re
import sys
import textwrap
from pathlib import Path

from truestep.doctor.retired import RETIRED

HERE = Path(__file__).parent
CHECKS = HERE.parents[2] / "src/truestep/doctor/checks"
WIDTH = 108
COUNTED = re.compile(
    r"((?:corpus|beds? \w|186 repositories|, |\w\b)+): (\d+) true,(?: (\d+) debatable,)? (\d+) false"
)
SAID_BY = re.compile(r"(\w+) says it\b")
RECORD = re.compile(r"corpus|186 repositories|\b[A-Z]\b")
EVIDENCE = re.compile(r"    Evidence: (.+?)\n(?=\n|    \"\"\"|\"\"\")", re.DOTALL)


def added(evidence: str, found: dict[str, list[int]]) -> str:
    """Return the text of an Evidence with the counts of beds that it does not name yet added to those of its records."""
    parts = evidence.rstrip(".").split("; ")
    counted = [known for part in parts if (known := COUNTED.fullmatch(part))]
    records = [record for known in counted for record in RECORD.findall(known[1])]
    counts = [[int(each or 0) for each in known.groups()[1:]] for known in counted]
    counts += [more for bed, more in found.items() if bed not in records]
    records += [bed for bed in found if bed not in records]
    true, debatable, false = (sum(each) for each in zip(*counts, strict=True))
    middle = f" {debatable} debatable," if debatable else ""
    rest = [part for part in parts if not COUNTED.fullmatch(part)]
    beds = ", ".join(sorted(each for each in records if len(each) == 1))
    named = [f"bed{'s' * (len(beds) > 1)} {beds}"] if beds else []
    told = ", ".join([*(each for each in records if len(each) > 1), *named])
    return "; ".join([*rest, f"{told}: {true} true,{middle} {false} false"]) + "."


def codes_of(code: str) -> list[str]:
    """Return a check's code, and the codes that were merged into it."""
    return [
        code,
        *(old for old, check in RETIRED.items() if (said := SAID_BY.match(check.reason)) and said[1] == code),
    ]


def counts(row: dict, code: str) -> list[int] | None:
    """Return how often a bed had a check true, debatable and false; None where it had no verdict on it."""
    judged = [row[kind][each] for kind in ("bug", "risk") for each in codes_of(code) if each in row[kind]]
    return [sum(verdict[at] for verdict in judged) for at in (0, 2, 1)] if judged else None


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
        found = {name: counted for name, row in beds.items() if (counted := counts(row, code[1]))}
        if found:
            new = textwrap.fill(
                f"Evidence: {added(' '.join(page[1].split()), found)}",
                WIDTH,
                break_long_words=False,
                break_on_hyphens=False,
            )
            path.write_text(text.replace(page[0], textwrap.indent(new, "    ") + "\n"))


if __name__ == "__main__":
    main(sys.argv[1:])
