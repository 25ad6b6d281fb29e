# SPDX-License-Identifier: Apache-2.0
"""What an update costs on a machine that is busy: `python benchmarks/engine/fastest.py [--turns 150] [row ...]`.

The rows of `update.py`, each step timed by the clock. Turns of 20 steps by hand, of ours and of direct kernels follow one another.
Other programs only ever add time, so the fastest tenth of many steps is what a step takes by itself. Steps differ: every tenth
writes a line. So the tenth is taken of each place between two lines, and the mean over the ten places is shown.

What comes more seldom than every tenth step is not in it: a look at the layers (one update in 64), and reading lines (64 together).
"""

import argparse
import gc
import statistics
import time
import warnings

import torch
import update

TURN, PLACES = 20, 10
now = time.perf_counter_ns


def fastest(contenders, turns):
    """Return the microseconds of a step of each."""
    for each in contenders:
        each.run(60)
    spent = [[[] for _ in range(PLACES)] for _ in contenders]
    steps = 0
    gc.collect()
    gc.disable()
    for _ in range(turns):
        for contender, places in zip(contenders, spent, strict=True):
            contender.run(PLACES)  # the caches are another's
            for step in range(steps, steps + TURN):
                began = now()
                contender.run(1)
                places[step % PLACES].append(now() - began)
    gc.enable()
    return [statistics.mean(statistics.quantiles(place, n=10)[0] for place in each) / 1000 for each in spent]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--turns", type=int, default=150)
    parser.add_argument(
        "names", nargs="*", help="rows with exactly these names; all but the compiled one by default"
    )
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    print("| | by hand, µs | ours, µs | direct kernels, µs | ours / by hand | direct kernels / by hand |")
    print("|---|---|---|---|---|---|")
    for row in update.rows():
        if row.name not in asked.names and (asked.names or row.compile):
            continue
        contenders = [update.ByHand(row), update.Ours(row)]
        if row.is_plain:
            contenders.append(update.DirectKernels(row))
        hand, ours, *direct = fastest(contenders, asked.turns)
        limit = (f"{direct[0]:.0f}", f"{direct[0] / hand:.2f}") if direct else ("", "")
        print(
            f"| {row.name} | {hand:.0f} | {ours:.0f} | {limit[0]} | {ours / hand:.2f} | {limit[1]} |",
            flush=True,
        )
        contenders[1].close()


if __name__ == "__main__":
    main()
