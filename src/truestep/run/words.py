# SPDX-License-Identifier: Apache-2.0
"""What a run says when it starts: where it goes on, what it promises, what it keeps, and that nothing is left to do."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from truestep.engine.choices import Choice
from truestep.engine.context import Context
from truestep.run.cursor import Cursor
from truestep.run.fingerprint import fingerprint, promise
from truestep.run.tracking import Tracked, sizes


class Beginning(NamedTuple):
    """What a run goes on from: a checkpoint, the environment it was saved in, what the code has changed since, and how large
    each tracked state is."""

    checkpoint: str
    environment: dict[str, Any]
    changed: list[str]
    tracked: dict[str, str]


class Beginner(Protocol):
    """What is known of a run when it starts."""

    context: Context
    cursor: Cursor
    directory: Path
    edits: list[str]
    holds_run: bool
    tracked: Tracked

    def choices(self) -> list[Choice]:
        """Return every automatic choice with its reason."""


def at_the_start(run: Beginner, resumed: Beginning | None) -> Iterator[str]:
    """Yield what is to be said once the run stands where it goes on."""
    if resumed is not None:
        now = fingerprint(run.context.device)
        promised = promise(resumed.environment, now, run.choices(), [*run.edits, *resumed.changed])
        yield f"going on from {resumed.checkpoint} (step {run.cursor.step}, epoch {run.cursor.epoch}); the rest is {promised}"
    elif run.holds_run:
        yield "this run was stopped before its first checkpoint; it starts at the beginning"
    if tracked := resumed.tracked if resumed is not None else sizes(run.tracked.state()):
        listed = ", ".join(f"{name} {size}" for name, size in tracked.items())
        yield f"every checkpoint also keeps what run.track was given: {listed}"
    for choice in run.choices():
        if choice.weakens:
            yield f"{choice.name}: {choice.value}; {choice.reason}"


def nothing_is_left(run: Beginner, done: str, call: str) -> str:
    """Return what is said where a loop has nothing to do any more."""
    more = f"give {call} a larger number to make it longer"
    if run.cursor.finished:
        done = f"run.finish() ended this run at step {run.cursor.step}"
        more = 'resume="edited" takes it up where it was ended'
    return f'{done}; nothing is left to train. ts.Run(..., resume="anew") starts a new run beside {run.directory}, {more}'
