# SPDX-License-Identifier: Apache-2.0
"""Ranks: two or three processes train what one trains, within rounding, also where they go on from what another number began.

Where the weights are divided (fsdp) two do."""

from pathlib import Path

import torch
from programs.compose import Program
from programs.laws.comparing import apart, joined
from programs.laws.running import Trial, chance, notes, refusals

WITHIN = 1e-6  # in float64, after some updates: where a true gradient is 0 an adaptive optimizer steps on its rounding


def ranks_agree(program: Program, folder: Path) -> str:
    """Hold a run of several processes, each with all weights and a part of every batch, against that of one."""
    return agreed(program, folder, "ranks", ([2], [2], [3], [2, 1], [1, 2], [2, 3], [3, 2]))


def divided_ranks_agree(program: Program, folder: Path) -> str:
    """Hold a run of two processes that each have a part of the weights, or that go on as one, against that of one."""
    return agreed(program, folder, "fsdp", ([2], [2], [2, 1], [1, 2]), ', strategy="fsdp"')


def agreed(
    program: Program, folder: Path, law: str, numbers: tuple[list[int], ...], options: str = ""
) -> str:
    """Hold a run on one number of processes after the other, in float64, against that of one process."""
    drawn = chance(program, law)
    sizes = drawn.choice(numbers)
    if any(refusals(habit, program, law, ("refused",)) for habit in program.habits):
        sizes = [max(sizes)]  # several processes refuse it, where one has not begun it
    if any(habit.has("not under", "resume") for habit in program.habits):
        sizes = sizes[-1:]  # what such a program holds in the middle, a list of batches say, is not saved
    given = {
        "law saves": ", saving=ts.Saving(every_steps=EVERY, background=False)",
        "law saves too": "every_steps=EVERY, ",
        "law stops": "stop_at(run)",
    }
    noted = {"law options": options, "loss noted": "note_weights(run, [{{learners}}])"}
    if law == "fsdp":  # a file of one process's parts is refused
        noted["end saved"] = ""
    trial = Trial(program, folder, law, noted | (given if sizes[1:] else {}))
    watched = {"WATCHED": chance(program, f"{law} watched").choice((True, False))}
    alone = trial.end("alone", WATCHED=False)
    for size in sizes[:-1]:
        stop = drawn.choice((1, 2, 3, 5))
        trial.end("together", size, STOP=stop, EVERY=1, **watched)
    together = trial.end("together", sizes[-1], **watched)
    rounded = [float(habit.words.get(f"within under {law}", WITHIN)) for habit in program.habits]
    ends = [torch.load(together / f"learners-{rank}.pt") for rank in range(sizes[-1])]
    found, seen = joined(ends)
    seen += apart(torch.load(alone / "learners-0.pt"), found, max(rounded)) + weights_apart(together, sizes)
    if not program.habit("batching").has(
        "is", "reordered"
    ):  # by its collate function, on each rank for itself
        seen += batches_apart(alone, together, sizes)
    return trial.same([f"on {sizes} processes", *seen] if seen else [])


def batches_apart(alone: Path, together: Path, sizes: list[int]) -> list[str]:
    """Return each step whose rows, put together from all ranks, are not those of one process in their order."""
    rows: dict[tuple[int, int], list[str]] = {}
    for rank in range(max(sizes)):
        for note in notes(together, rank):
            if note["what"] == "batch":
                rows.setdefault((note["step"], note["size"]), []).extend(note["value"])
    expected = {note["step"]: note["value"] for note in notes(alone) if note["what"] == "batch"}
    found = {step: value for size in sizes for (step, each), value in rows.items() if each == size}
    return [f"other rows at step {step}" for step in expected if expected[step] != found.get(step)]


def weights_apart(together: Path, sizes: list[int]) -> list[str]:
    """Return each step behind which the weights that every rank has whole were not the same on all."""
    seen: dict[tuple[int, int], set[str]] = {}
    for rank in range(max(sizes)):
        for note in notes(together, rank):
            if note["what"] == "weights":
                seen.setdefault((note["step"], note["size"]), set()).add(note["value"])
    return [
        f"other weights by rank behind step {step}" for (step, _), found in seen.items() if len(found) > 1
    ]
