# SPDX-License-Identifier: Apache-2.0
"""`python -m programs.tally`: add the slices of build/programs.json to the table that is kept, habit by law, and print it.

The table (tally.txt) names its slices, each of which counts once; what failed then stays counted when it is mended.
"""

import json
from collections import Counter
from pathlib import Path

from programs.habits import HERE
from programs.laws import LAWS

TALLY = Path("build/programs.json")
KEPT = HERE / "tally.txt"
ENDS = ("run", "refused", "failed")
CORNER = "run / refused / failed"


def tallied(path: Path, number: int, counts: Counter, violations: list[dict], seconds: float) -> dict:
    """Put a slice into the tally, and return all of it."""
    kept = json.loads(path.read_text("utf-8")) if path.exists() else {}
    counted = {" ".join(key): value for key, value in counts.items()}
    kept[str(number)] = {"counts": counted, "violations": violations, "seconds": round(seconds)}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(kept, indent=1, sort_keys=True), "utf-8")
    return kept


def total_of(kept: dict) -> Counter:
    """Return the counts of all slices of a tally."""
    total: Counter = Counter()
    for each in kept.values():
        total.update(each["counts"])
    return total


def table(total: Counter) -> str:
    """Return, law by law and habit by habit, how many programs ran, were refused, and failed."""
    names = sorted({name for _, name, _ in map(str.split, total)} - {"all"})
    lines = [f"{CORNER:34}" + "".join(f"{law:>14}" for law in LAWS)]
    for name in ["all", *names]:
        cells = ["/".join(str(total[f"{law} {name} {end}"]) for end in ENDS) for law in LAWS]
        lines.append(f"{name:34}" + "".join(f"{cell:>14}" for cell in cells))
    return "\n".join(lines)


def read_table(text: str) -> Counter:
    """Return the counts that a table shows."""
    first, *lines = text.splitlines()
    laws = first.removeprefix(CORNER).split()
    total: Counter = Counter()
    for name, *cells in map(str.split, lines):
        for law, cell in zip(laws, cells, strict=True):
            total.update(
                {f"{law} {name} {end}": int(count) for end, count in zip(ENDS, cell.split("/"), strict=True)}
            )
    return +total


def with_slices(text: str, tally: dict) -> str:
    """Return a kept table, or an empty text, with those slices of a tally that it does not have."""
    first, _, rest = text.partition("\n")
    slices = first.removeprefix("slices").split()
    new = {number: each for number, each in tally.items() if number not in slices}
    total = (read_table(rest) if rest else Counter()) + total_of(new)
    return " ".join(["slices", *sorted({*slices, *new}, key=int)]) + "\n" + table(total) + "\n"


def main() -> None:
    """Keep the slices."""
    kept = KEPT.read_text("utf-8") if KEPT.exists() else ""
    KEPT.write_text(with_slices(kept, json.loads(TALLY.read_text("utf-8"))), "utf-8")
    print(KEPT.read_text("utf-8"))


if __name__ == "__main__":
    main()
