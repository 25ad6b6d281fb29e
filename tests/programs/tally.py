# SPDX-License-Identifier: Apache-2.0
"""`python -m programs.tally`: add the slices of build/programs.json to the table that is kept, habit by law, and print it.

The table (tally.txt) names its slices, each of which counts once, by their programs and the commit; 401 to 411 are of draws before
these had names. What failed then stays counted when it is mended.
"""

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from programs.habits import HERE
from programs.laws import LAWS

TALLY = Path("build/programs.json")
KEPT = HERE / "tally.txt"
ENDS = ("run", "refused", "failed")
CORNER = "run / refused / failed"


@dataclass
class SliceTally:
    """What became of the programs from a number on, at a commit."""

    first: int
    commit: str
    last: int = -1
    counts: Counter = field(default_factory=Counter)
    seconds: Counter = field(default_factory=Counter)  # by law
    violations: list[dict] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Return which programs they are."""
        return f"{self.first}-{self.last}@{self.commit}"

    def count(self, number: int, law: str, habits: list[str], end: str, seconds: float) -> None:
        """Count how a program of these habits ended under a law."""
        self.last = number
        self.seconds[law] += seconds
        self.counts.update(f"{law} {name} {end}" for name in ("all", *habits))

    def speed(self) -> str:
        """Return how many laws were held in a minute, and how long each took."""
        held: Counter = Counter()
        for key, count in self.counts.items():
            law, name, _ = key.split()
            held[law] += count if name == "all" else 0
        each = ", ".join(f"{law} {self.seconds[law] / held[law]:.1f} s" for law in LAWS if held[law])
        return (
            f"{60 * held.total() / self.seconds.total():.1f} laws held a minute: {each}"
            if each
            else "none held"
        )


def tallied(path: Path, held: SliceTally) -> dict:
    """Put a slice into the tally, and return all of it."""
    kept = json.loads(path.read_text("utf-8")) if path.exists() else {}
    kept = {name: each for name, each in kept.items() if not name.startswith(f"{held.first}-")}
    kept[held.name] = {"counts": held.counts, "violations": held.violations, "seconds": held.seconds}
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


def shares(total: Counter) -> str:
    """Return how many laws were held, and which habits are the rarest, and the most often refused, as shares of 100."""
    held, ended = Counter(), Counter()
    for key, count in total.items():
        _, name, end = key.split()
        held[name] += count
        ended[name, end] += count
    whole = held["all"]
    share = {name: ended[name, "refused"] / held[name] for name in held}
    rarest = min(held, key=held.__getitem__)
    refused = max(held, key=share.__getitem__)
    return (
        f"{whole} laws held over programs, {ended['all', 'failed']} broken, {100 * share['all']:.1f} in 100 refused; "
        f"the habit most refused: {refused} ({100 * share[refused]:.0f} in 100 of {held[refused]}); "
        f"the rarest: {rarest} ({100 * held[rarest] / whole:.1f} in 100)"
    )


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
    return " ".join(["slices", *sorted({*slices, *new}, key=_first)]) + "\n" + table(total) + "\n"


def _first(name: str) -> tuple[int, str]:
    return int(name.partition("-")[0]), name


def main() -> None:
    """Keep the slices."""
    kept = KEPT.read_text("utf-8") if KEPT.exists() else ""
    KEPT.write_text(with_slices(kept, json.loads(TALLY.read_text("utf-8"))), "utf-8")
    text = KEPT.read_text("utf-8")
    print(text, shares(read_table(text.partition("\n")[2])), sep="\n")


if __name__ == "__main__":
    main()
