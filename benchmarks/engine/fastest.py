# SPDX-License-Identifier: Apache-2.0
"""What an update costs on a machine that is busy: `python benchmarks/engine/fastest.py [--turns 150] [row ...]`.

The rows of `update.py`, each step timed by the clock. Turns of 20 steps by hand, of ours and of direct kernels, each in a process
of its own, follow one another.
Other programs only ever add time, so the fastest tenth of many steps is what a step takes by itself. Steps differ: every tenth
writes a line. So the tenth is taken of each place between two lines, and the mean over the ten places is shown.

What comes more seldom than every tenth step is not in it: a look at the layers (one update in 64), and reading lines (64 together).
"""

import argparse
import statistics

import update
from turns import Contender

TURN, PLACES = 20, 10


def fastest(contenders, turns):
    """Return the microseconds of a step of each."""
    spent = [[[] for _ in range(PLACES)] for _ in contenders]
    for _ in range(turns):
        for contender, places in zip(contenders, spent, strict=True):
            steps = contender.turn(PLACES + TURN)[1]
            for step in range(PLACES, PLACES + TURN):  # in the first the caches are another's
                places[step % PLACES].append(steps[step])
    return [statistics.mean(statistics.quantiles(place, n=10)[0] for place in each) for each in spent]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--turns", type=int, default=150)
    parser.add_argument(
        "names", nargs="*", help="rows with exactly these names; all but the compiled one by default"
    )
    asked = parser.parse_args()
    print("| | by hand, µs | ours, µs | direct kernels, µs | ours / by hand | direct kernels / by hand |")
    print("|---|---|---|---|---|---|")
    for row in update.rows():
        if row.name not in asked.names and (asked.names or row.compile):
            continue
        kinds = ["ByHand", "Ours", *(["DirectKernels"] if row.is_plain else [])]
        contenders = [Contender(kind, row.name) for kind in kinds]
        hand, ours, *direct = fastest(contenders, asked.turns)
        limit = (f"{direct[0]:.0f}", f"{direct[0] / hand:.2f}") if direct else ("", "")
        print(
            f"| {row.name} | {hand:.0f} | {ours:.0f} | {limit[0]} | {ours / hand:.2f} | {limit[1]} |",
            flush=True,
        )
        for contender in contenders:
            contender.close()


if __name__ == "__main__":
    main()
