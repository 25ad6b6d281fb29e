# SPDX-License-Identifier: Apache-2.0
"""Ownership: a second learner's updates leave the first as it is, and where it would be if it were alone."""

from pathlib import Path

from programs.compose import Program
from programs.laws.comparing import differing, ends
from programs.laws.running import Trial, notes


def learners_are_apart(program: Program, folder: Path) -> str:
    """Hold a learner's weights, gradients, buffers and modes around another's update, and its end with and without it."""
    given = {
        "critic begins": "before_another(model)",
        "critic ends": "behind_another(run, model)",
    }
    both = Trial(program, folder / "both", "ownership", given)
    alone = Trial(program.with_habit("one_learner"), folder / "alone", "ownership")
    folders = [both.end("run in"), alone.end("run in", WATCHED=False)]
    seen = [
        f"{note['value']}, at step {note['step']}" for note in notes(folders[0]) if note["what"] == "moved"
    ]
    first, second = (ends(each)["learners"][0] for each in folders)
    return both.same(seen + differing(first, second))
