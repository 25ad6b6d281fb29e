# SPDX-License-Identifier: Apache-2.0
"""Truthful metrics: a figure of an evaluation is that of all rows in float64, on any number of processes."""

from pathlib import Path

from programs.compose import Program
from programs.laws.running import UNWATCHED, Trial, chance, notes

WITHIN = 1e-12


def figures_are_true(program: Program, folder: Path) -> str:
    """Hold what `evaluate` returns of drawn rows, in drawn batches, against the mean over the rows by hand."""
    drawn = chance(program, "truthful")
    given = UNWATCHED | {
        "held rows": str(drawn.randrange(1, 30)),
        "held batch": str(drawn.randrange(1, 12)),
        "evaluated": "note_figure(run, accuracy, model, held_rows)",
    }
    trial = Trial(program, folder, "truthful", given)
    size = drawn.choice((1, 1, 2, 3))
    ended = trial.end("evaluated", size)
    seen, count = [], 0
    for rank in range(size):
        for note in notes(ended, rank):
            if note["what"] == "figure":
                count += 1
                found, expected = note["value"]
                if abs(found - expected) > WITHIN * abs(expected):
                    seen.append(f"rank {rank} of {size}: {found}, and by hand {expected}")
    return trial.same(seen if count else ["nothing was evaluated"])
