# SPDX-License-Identifier: Apache-2.0
"""What an update costs in two versions of the package: `python benchmarks/engine/versions.py before/src after/src [row ...]`.

The loop by hand and each version have a process of their own and take turns of 30 steps of `update.py`'s rows. Shown are the
microseconds of the fastest tenth of steps, as `fastest.py` has them (the first ten of a turn do not count), and by turns the
median of a step's processor time, in which lines, their reading and looks are.
"""

import argparse
import statistics

from turns import Contender

TURN, PLACES = 30, 10


class Version:
    """What the steps of one version took."""

    def __init__(self, kind, name, source):
        self.steps, self.turns = [[] for _ in range(PLACES)], []
        self.contender = Contender(kind, name, source)

    def take_turn(self):
        turn, steps = self.contender.turn(TURN)
        self.turns.append(turn)
        for place in range(PLACES, TURN):
            self.steps[place % PLACES].append(steps[place])

    @property
    def figures(self):
        fastest = statistics.mean(statistics.quantiles(place, n=10)[0] for place in self.steps)
        return fastest, statistics.median(self.turns)


def main():
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
            version.contender.close()
        (hand, slow), (before, old), (after, new) = (version.figures for version in versions)
        ratios = f"{before:.0f} | {before / hand:.2f} | {after:.0f} | {after / hand:.2f}"
        print(f"| {name} | {hand:.0f} | {ratios} | {old / slow:.2f} | {new / slow:.2f} |", flush=True)


if __name__ == "__main__":
    main()
