# SPDX-License-Identifier: Apache-2.0
"""`python -m programs.torture SLICE`: hold three laws over each program of a slice of draws, and keep a tally of all slices.

Slice 3 is of the programs 600 to 799; the first sixty slices hold every pair of habits. A slice ends when its draws or its minutes
are over. What broke a law is shrunk to the fewest habits that still do, and printed. The tally (build/programs.json) counts, for
each law and habit, how many programs ran, were refused, and failed; each slice counts once. `python -m programs.tally` adds its
slices to those that are kept in tally.txt.
"""

import argparse
import os
import subprocess
import tempfile
import time
from pathlib import Path

from programs.compose import Program
from programs.draws import fitted, shrunk, trials
from programs.laws import ViolationError, hold
from programs.tally import TALLY, SliceTally, table, tallied, total_of

SLICE = 200
# once, not in each process (in `make test` all but the first and the last are, and these under the law Watched)
LOADED = (
    "datasets lightning transformers.trainer accelerate ignite.engine torch.utils.tensorboard "
    # and what the first call of a compiled function imports, half a second in each process
    "torch._dynamo.backends.inductor torch._dynamo.backends.cudagraphs torch._dynamo.repro.after_dynamo torch.export._trace "
    "torch.distributed.tensor.experimental"
)


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


def commit() -> str:
    """Return which state of the code is held to the laws; nothing outside of a repository."""
    said = subprocess.run(
        ("git", "rev-parse", "--short=8", "HEAD"), capture_output=True, text=True, check=False
    )
    return said.stdout.strip()


def run_slice(number: int, minutes: float) -> SliceTally:
    """Hold the laws over the programs of a slice, until its time is over; keep the tally now and then."""
    held = SliceTally(number * SLICE, commit())
    begun = kept = time.monotonic()
    for each, law, program in trials(range(number * SLICE, (number + 1) * SLICE)):
        now = time.monotonic()
        if now > begun + 60 * minutes:
            break
        if now > kept + 60:
            tallied(TALLY, held)
            kept = now
        end, seen = outcome(law, program)
        names = [habit.name for habit in program.habits]
        held.count(each, law, names, end, time.monotonic() - now)
        if end == "failed":
            print(f"draw {each} broke {law}: {program!r}\n{seen[:1500]}", flush=True)
            habits = [habit.name for habit in fewest(law, program).habits if "plainest" not in habit.words]
            held.violations.append(
                {"draw": each, "law": law, "habits": " ".join(habits), "seen": seen[:3000]}
            )
            print(f"shrunk to: {' '.join(habits)}\n", flush=True)
    return held


def main() -> int:
    """Run a slice, and return whether a law was broken."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("slice", type=int, help="which one: any number")
    parser.add_argument("--minutes", type=float, default=60.0)
    asked = parser.parse_args()
    os.environ.setdefault("WARM_ALSO", LOADED)
    print(f"slice {asked.slice}, {SLICE} programs", flush=True)
    held = run_slice(asked.slice, asked.minutes)
    print(table(total_of(tallied(TALLY, held))))
    print(held.speed())
    print(f"slice {asked.slice}, programs {held.name}: {len(held.violations)} laws broken")
    return bool(held.violations)


if __name__ == "__main__":
    raise SystemExit(main())
