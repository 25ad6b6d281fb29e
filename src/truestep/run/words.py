# SPDX-License-Identifier: Apache-2.0
"""What a run says when it starts: where it goes on, what it promises, what it keeps, and that nothing is left to do."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from truestep.run.fingerprint import fingerprint, promise
from truestep.run.tracking import sizes

if TYPE_CHECKING:
    from truestep.run.run import Run
    from truestep.run.saver import Beginning


def at_the_start(run: "Run", resumed: "Beginning | None") -> Iterator[str]:
    """Yield what is to be said once the run stands where it goes on."""
    if resumed is not None:
        now = fingerprint(run.context.device)
        promised = promise(resumed.environment, now, run.choices(), [*run.edits, *resumed.changed])
        yield f"going on from {resumed.checkpoint} (step {run.step}, epoch {run.epoch}); the rest is {promised}"
    elif run.holds_run:
        yield "this run was stopped before its first checkpoint; it starts at the beginning"
    if tracked := resumed.tracked if resumed is not None else sizes(run.tracked.state()):
        listed = ", ".join(f"{name} {size}" for name, size in tracked.items())
        yield f"every checkpoint also keeps what run.track was given: {listed}"
    for choice in run.choices():
        if choice.weakens:
            yield f"{choice.name}: {choice.value}; {choice.reason}"


def nothing_is_left(run: "Run", done: str, call: str) -> str:
    """Return what is said where a loop has nothing to do any more."""
    more = f"give {call} a larger number to make it longer"
    if run.cursor.finished:
        done = f"run.finish() ended this run at step {run.step}"
        more = 'resume="edited" takes it up where it was ended'
    return f'{done}; nothing is left to train. ts.Run(..., resume="anew") starts a new run beside {run.directory}, {more}'
