# SPDX-License-Identifier: Apache-2.0
"""Order: each batch is a function of seed and epoch alone, whatever number of workers reads it."""

from pathlib import Path

from programs.compose import Program
from programs.laws.running import UNWATCHED, Trial, chance, notes


def order_is_kept(program: Program, folder: Path) -> str:
    """Hold the batches that other numbers of workers load against those that the process loads itself."""
    trial = Trial(program, folder, "order", UNWATCHED)
    workers = chance(program, "order").choice((1, 2, 3))
    first, second = (
        [note for note in notes(trial.end(f"with {each}", WORKERS=each)) if note["what"] == "batch"]
        for each in (0, workers)
    )
    seen = [f"{a} and, with {workers} workers, {b}" for a, b in zip(first, second, strict=False) if a != b]
    if len(first) != len(second):
        seen.append(f"{len(first)} batches and, with {workers} workers, {len(second)}")
    return trial.same(seen)
