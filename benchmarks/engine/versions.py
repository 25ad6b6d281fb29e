# SPDX-License-Identifier: Apache-2.0
"""What an update costs in two versions of the package: `python benchmarks/engine/versions.py before/src after/src [row ...]`.

The loop by hand and each version have a process of their own and take turns of 30 steps of `update.py`'s rows. Shown are the
microseconds of the fastest tenth of steps, as `fastest.py` has them (the first ten of a turn do not count), and by turns the
median of a step's processor time, in which lines, their reading and looks are.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

TURN, PLACES = 30, 10


def work(kind, name):
    """Make the steps that are asked for on standard input, in the process of one version."""
    import gc

    import torch
    import update

    torch.set_num_threads(1)
    contender = getattr(update, kind)(next(row for row in update.rows() if row.name == name))
    contender.run(100)
    gc.collect()
    gc.disable()
    for _ in sys.stdin:
        moments, began = [time.perf_counter_ns()], time.process_time_ns()
        for _ in range(TURN):
            contender.run(1)
            moments.append(time.perf_counter_ns())
        print(json.dumps([moments, (time.process_time_ns() - began) / TURN]), flush=True)


class Version:
    """A process that makes steps, and what they took."""

    def __init__(self, kind, name, source):
        self.steps, self.turns = [[] for _ in range(PLACES)], []
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", __file__, "--work", kind, name],
            env={**os.environ, "PYTHONPATH": source},
            **dict.fromkeys(("stdin", "stdout"), subprocess.PIPE),
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def take_turn(self):
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        moments, turn = json.loads(self._process.stdout.readline())
        self.turns.append(turn / 1000)
        for place in range(PLACES, TURN):
            self.steps[place % PLACES].append((moments[place + 1] - moments[place]) / 1000)

    def close(self):
        self._process.stdin.close()
        self._process.wait()

    @property
    def figures(self):
        fastest = statistics.mean(statistics.quantiles(place, n=10)[0] for place in self.steps)
        return fastest, statistics.median(self.turns)


def main():
    if sys.argv[1:2] == ["--work"]:
        return work(*sys.argv[2:])
    parser = argparse.ArgumentParser()
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("rows", nargs="*", default=["one parameter", "small MLP", "small MLP, clip"])
    parser.add_argument("--turns", type=int, default=70)
    asked = parser.parse_args()
    print(
        "| | by hand | before | ratio | after | ratio | turns, before | turns, after |\n|---|---|---|---|---|---|---|---|"
    )
    for name in asked.rows:
        kinds = (("ByHand", asked.before), ("Ours", asked.before), ("Ours", asked.after))
        versions = [Version(kind, name, source) for kind, source in kinds]
        for turn in range(asked.turns):
            for version in versions if turn % 2 else reversed(versions):
                version.take_turn()
        for version in versions:
            version.close()
        (hand, slow), (before, old), (after, new) = (version.figures for version in versions)
        ratios = f"{before:.0f} | {before / hand:.2f} | {after:.0f} | {after / hand:.2f}"
        print(f"| {name} | {hand:.0f} | {ratios} | {old / slow:.2f} | {new / slow:.2f} |", flush=True)
    return None


if __name__ == "__main__":
    main()
