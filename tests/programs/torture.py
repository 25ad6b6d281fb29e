# SPDX-License-Identifier: Apache-2.0
"""`python -m programs.torture SLICE`: hold three laws over each program of a slice of draws, and keep a tally of all slices.

A slice ends when its draws or its minutes are over. What broke a law is shrunk to the fewest habits that still do, and printed. The
tally (build/programs.json) counts, for each law and habit, how many programs ran, were refused, and failed; each slice counts once.
`python -m programs.tally` adds its slices to those that are kept in tally.txt.
"""

import argparse
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path

from programs.compose import Program
from programs.draws import fitted, shrunk, trials
from programs.laws import ViolationError, hold
from programs.tally import TALLY, table, tallied, total_of

SLICE = 1000


def outcome(law: str, program: Program) -> tuple[str, str]:
    """Return how a program ended under a law, and what was seen if it broke it."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            return hold(law, program, Path(folder) / "program"), ""
        except ViolationError as error:
            return "failed", error.seen
        except subprocess.TimeoutExpired as error:
            return "failed", f"it hung: {error}"


def fewest(law: str, program: Program, most_tries: int = 25) -> Program:
    """Return the program of the fewest habits that breaks the law, as far as so many tries find it."""
    tries = iter(range(most_tries))

    def fails(simpler: Program) -> bool:
        held = fitted(simpler, law)
        return next(tries, None) is not None and held == simpler and outcome(law, simpler)[0] == "failed"

    return shrunk(program, fails)


def run_slice(number: int, minutes: float, count: int) -> tuple[Counter, list[dict]]:
    """Hold the laws over the programs of a slice, until its time is over; keep the tally now and then."""
    counts: Counter = Counter()
    violations: list[dict] = []
    begun = kept = time.monotonic()
    for each, law, program in trials(number, count):
        now = time.monotonic()
        if now > begun + 60 * minutes:
            break
        if now > kept + 60:
            tallied(TALLY, number, counts, violations, now - begun)
            kept = now
        end, seen = outcome(law, program)
        for name in ("all", *(habit.name for habit in program.habits)):
            counts[law, name, end] += 1
        if end == "failed":
            print(f"draw {each} broke {law}: {program!r}\n{seen[:1500]}", flush=True)
            habits = [habit.name for habit in fewest(law, program).habits if "plainest" not in habit.words]
            violations.append({"draw": each, "law": law, "habits": " ".join(habits), "seen": seen[:3000]})
            print(f"shrunk to: {' '.join(habits)}\n", flush=True)
    return counts, violations


def main() -> int:
    """Run a slice, and return whether a law was broken."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("slice", type=int, help="which one: any number")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--count", type=int, default=SLICE, help="how many programs a slice has")
    asked = parser.parse_args()
    begun = time.monotonic()
    print(f"slice {asked.slice}, {asked.count} programs", flush=True)
    counts, violations = run_slice(asked.slice, asked.minutes, asked.count)
    kept = tallied(TALLY, asked.slice, counts, violations, time.monotonic() - begun)
    print(table(total_of(kept)))
    done = sum(value for (_, name, _), value in counts.items() if name == "all")
    print(f"slice {asked.slice}: {done} laws held over programs, {len(violations)} broken")
    return bool(violations)


if __name__ == "__main__":
    raise SystemExit(main())
