# SPDX-License-Identifier: Apache-2.0
"""Resume: a run that is killed at drawn moments, and started again until it ends, ends with the bits of the undisturbed one.

A moment is a call of a Python function in the main thread, whoever's it is: of the program, of the engine, in a fetch, an
evaluation, a save, at the end. It lies behind a drawn batch, rather a late one of its epoch, and of a stream that tells its place
the last but one; beside one in ten there is another before the first batch.
SIGKILL, SIGINT and SIGTERM come in turn; or a function of the program's own raises, or leaves by SystemExit. Each start may have
another number of workers. With each batch the program draws from the random streams that its own code shares with everybody.
"""

import json
import random
import signal
from collections.abc import Iterator
from pathlib import Path

from programs.compose import Program
from programs.laws.comparing import differing, ends
from programs.laws.running import START, Trial, chance, notes, ran

SIGNALS = tuple(str(int(each)) for each in (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT))
WAYS = (*SIGNALS, "raises", "leaves")
MOST_BEFORE = 30_000  # calls before the first batch; all programs have as many
MORE_ROWS = "60"  # of a stream that tells its place: it is asked for it every third batch, and must have given three behind it
MOST_STARTS = 6  # a start may fail once where a program reads, behind its loop, what the loop would have set


def resume_is_exact(program: Program, folder: Path) -> str:
    """Hold a run under kills against the one without: learners, files, metrics, and the batch and loss of every step."""
    drawn = chance(program, "resume")
    every, background = drawn.choice((1, 2, 3)), drawn.choice((True, False))
    options = f"every_steps={every}, background={background}"
    trial = Trial(
        program,
        folder,
        "resume",
        {
            "law saves": f", saving=ts.Saving({options})",
            "law saves too": f"{options}, ",
            "batch noted": "note_drawn_batch(run, batch)",
            "stream rows": "20" if program.habit("batching").name == "batch_of_one" else MORE_ROWS,
        },
    )
    watched = {"WATCHED": chance(program, "resume watched").choice((True, False))}
    whole = trial.end("whole", WORKERS=drawn.choice((0, 0, 2)), DISTURBED="", **watched)
    calls = json.loads((whole / "calls.json").read_text("utf-8"))
    ways = [drawn.choice(WAYS) for _ in range(drawn.choice((1, 1, 2)))]
    left_to_do = [*moments(drawn, ways, calls, behind_place=program.habit("source").has("is", "placed"))]
    kills, said = list(left_to_do), []
    killed = trial.place("killed")
    for _ in range(MOST_STARTS):
        workers = drawn.choice((0, 0, 2))
        disturbed = {"DISTURBED": left_to_do.pop(0)} if left_to_do else {}
        ended = ran(killed, *START, WORKERS=workers, **watched, **disturbed)
        said.append(f"--- start that ended with {ended.returncode}\n{ended.stdout}{ended.stderr}")
        if ended.returncode == 0 and not left_to_do:
            break
    else:
        trial.broken(f"killed at {kills} of {calls[-1][1:]} calls, it never ended:\n" + "\n".join(said))
    seen = differing(ends(whole), ends(killed)) + steps_apart(whole, killed)
    return trial.same([f"killed at {kills} of {calls[-1][1:]} calls", *seen, *said] if seen else [])


def moments(
    drawn: random.Random, ways: list[str], calls: list[list[int]], *, behind_place: bool
) -> Iterator[str]:
    """Yield at which call since the first batch of its process each thing happens, or at which before it.

    `calls` is the epoch of each batch, how many there had been as it came, and how many of the program's own, and those at the end.
    """
    begun = 0  # the batch that the process goes on with, or a few behind it
    numbers = [late_batch(drawn, calls) for _ in ways]
    if behind_place:  # behind the last one no place is needed, and early in an epoch none is known
        numbers[0] = batches_of(calls, calls[numbers[0]][0])[-2:][0]
    for number, way in zip(sorted(numbers), ways, strict=True):
        if drawn.random() < 0.1:
            yield f"{drawn.randrange(1, MOST_BEFORE if way in SIGNALS else 10)} {way} early"
        before, first, last = (
            calls[each][1 if way in SIGNALS else 2] for each in (begun, number, number + 1)
        )
        yield f"{drawn.randint(first, last) + 1 - before} {way}"
        begun = number


def late_batch(drawn: random.Random, calls: list[list[int]]) -> int:
    """Return the number of a batch of any epoch, rather a late one of it: by then more was saved."""
    epoch = drawn.choice(sorted({each for each, *_ in calls[:-1]}))
    within = batches_of(calls, epoch)
    return max(drawn.choice(within) for _ in range(3))


def batches_of(calls: list[list[int]], epoch: int) -> list[int]:
    """Return the numbers of an epoch's batches."""
    return [number for number, (each, *_) in enumerate(calls) if each == epoch]


def steps_apart(whole: Path, killed: Path) -> list[str]:
    """Return each batch and loss, of any start, that is not the undisturbed run's at the same step."""
    expected: dict[tuple[object, object], list[object]] = {}  # two, where a zip draws two batches at once
    for note in notes(whole):
        expected.setdefault((note["what"], note["step"]), []).append(note["value"])
    seen = [
        note for note in notes(killed) if note["value"] not in expected.get((note["what"], note["step"]), [])
    ]
    missing = expected.keys() - {(note["what"], note["step"]) for note in notes(killed)}
    return [f"another {note['what']} at step {note['step']}" for note in seen] + [
        f"no {what} at step {step}" for what, step in sorted(missing)
    ]
