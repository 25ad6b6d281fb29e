# SPDX-License-Identifier: Apache-2.0
"""What a run says when it starts: where it goes on, what it promises, what it keeps, and that nothing is left to do."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from truestep.checkpoints.checkpoint import Checkpoint
from truestep.run.cursor import RunCursor
from truestep.run.directory import CHECKPOINTS
from truestep.run.fingerprint import EXACT, resume_exactness_sentence, run_fingerprint
from truestep.run.state import RunState


class ResumedRunStart(NamedTuple):
    """What a run goes on from: a checkpoint, the environment it was saved in, what the code has changed since, and how large
    each tracked state is."""

    checkpoint: str
    environment: dict[str, Any]
    changed: list[str]
    tracked: dict[str, str]


def run_start_messages(
    run: RunState, resumed: ResumedRunStart | None, tracked: dict[str, str]
) -> Iterator[tuple[str, bool]]:
    """Yield all that a run says when it starts, and whether its numbers are others by that.

    `tracked` is how large each thing is that checkpoints keep of the user's.
    """
    choices = run.context.choices
    if resumed is not None:
        saved, now = map(
            run.secrets.comparable,
            (resumed.environment, run_fingerprint(run.context.device, run.secrets.hash)),
        )
        promised = resume_exactness_sentence(saved, now, choices, [*run.edits, *resumed.changed])
        text = f"going on from {resumed.checkpoint} ({run_position_text(run.cursor)}); the rest is {promised}"
        yield text, not promised.startswith(EXACT)
        yield from ((each, False) for each in run.cursor.streams.how_it_resumes())
    elif run.holds_run:
        yield (
            f"this run was stopped before its first whole checkpoint{_mid_batch_checkpoint_text(run)}; it starts at the beginning",
            False,
        )
    if resumed is None:
        yield from ((each, False) for each in run.cursor.streams.what_it_costs())
    if tracked:
        listed = ", ".join(f"{name} {size}" for name, size in tracked.items())
        yield f"every checkpoint also keeps what run.track was given, as large as it is now: {listed}", False
    yield from ((f"{each.name}: {each.value}; {each.reason}", True) for each in choices if each.weakens)
    yield from ((each, True) for each in _low_precision_weight_warnings(run))


def _mid_batch_checkpoint_text(run: RunState) -> str:
    """Name what an exception left there to be looked at: it stays until a whole one is saved."""
    from truestep.checkpoints.listing import checkpoint_overview  # a run that goes on never comes here

    folder = run.directory / CHECKPOINTS
    there = checkpoint_overview(folder) if run.is_main and folder.is_dir() else []
    left = [each for each in there if isinstance(each, Checkpoint) and not each.summary.complete]
    if not left:
        return ""
    return f", and {left[0].name} ({left[0].summary.reason}) is no state to go on from; copy it if you want to look at it later"


def run_position_text(cursor: RunCursor) -> str:
    """Return where a run stands: epochs by how many are done, since the bar counts from 1 and `run.epoch` from 0."""
    return f"step {cursor.step:,}, {cursor.epoch:,} epoch{'s' * (cursor.epoch != 1)} done"


def _low_precision_weight_warnings(run: RunState) -> Iterator[str]:
    """Yield which learners keep their weights in 16 bits alone: a mode whose name many give who mean the mixed one."""
    for name, learner in run.context.learners.items():
        mode = learner.precision
        if mode.loses_small_updates:
            least = 100 * torch.finfo(mode.weights).eps / 2
            mixed = "bf16-mixed" if mode.weights == torch.bfloat16 else "fp16-mixed"
            yield (
                f'precision="{mode.name}" keeps the weights of {name!r} themselves in {mode.weights}: an update below '
                f'{least:.1g} % of a weight is lost. "{mixed}" computes in 16 bits and keeps them in float32, which is '
                "what most people mean"
            )


def nothing_left_to_do_message(directory: object, cursor: RunCursor, total: int, what: str) -> str:
    """Return what is said where a loop has nothing to do any more; `what` it counts: epochs or steps."""
    if total == 0:
        return (
            f"run.{what}(0) trains nothing: it was given 0 as the number of {what} of the whole run. Write how many it is to have, "
            f"run.{what}({'20' if what == 'epochs' else '1000'}); net.evaluate needs no loop"
        )
    made = cursor.epoch if what == "epochs" else cursor.step
    done = f"all {total} {what} are" if made <= total else f"{made} {what} are"
    done = f"{f'the only {what[:-1]} is' if total == made == 1 else done} done already"
    more = f"run.{what} counts those of the whole run: write run.{what}({made + total}) for {total} more"
    if cursor.finished:
        done = f"run.finish() ended this run at step {cursor.step}"
        more = 'ts.Run(..., resume="edited") takes it up where it was ended'
    return f'{done}; nothing is left to train. {more}. ts.Run(..., resume="anew") starts a new run beside {directory}'


def run_taken_over_message(directory: object) -> str:
    """Return what is said where a run gives its directory up to another one of the same process."""
    return (
        f"another ts.Run of {directory} was made while one was open, which ends here: a directory is one run's. Make ts.Run once "
        "and use it throughout; a second training needs a directory of its own"
    )


def interrupted_body_message(cursor: RunCursor) -> str:
    """Return what is said where a notebook's cell was interrupted in the body of a batch, and may run on."""
    return (
        f"the cell was interrupted in the body of step {cursor.step}: where the loop runs on here, what that body had still to do "
        "is left out, and the training ends elsewhere. To end as without the interrupt, run the cell with ts.Run(...) again: a new "
        "run goes on from the newest checkpoint"
    )


def unfinished_body_message(cursor: RunCursor, saved: str, *, is_dropped: bool) -> str:
    """Return what is said where the process ends in the body of an epoch, and nobody has said whether the training was over.

    The process may go on, where an exception was caught by code that lets go of the run.
    """
    ended = "the run was let go of" if is_dropped else "the process ended"
    return (
        f"{ended} at step {cursor.step}, in the body of epoch {cursor.epoch + 1}, and what the rest of that body would "
        f"have done is not known. The state is in {saved}. If the training was over, call run.finish() before you leave the loop; "
        "to go on from here later, run.close()"
    )


def stopped_by_signal_message(directory: object, cursor: RunCursor, saved: str, *, complete: bool) -> str:
    """Return what is said where a signal has stopped a run between two batches, as it asked."""
    if complete:
        return f"stopped as asked after step {cursor.done}; saved {saved}. A run in {directory} goes on from there."
    return (
        f"stopped as asked after step {cursor.done}, within which a second signal came and was caught: what it broke off may not "
        f"be done, so that step does not count. Saved {saved}. To be stopped between two steps, send one signal"
    )


def abandoned_body_message(cursor: RunCursor, saved: str) -> str:
    """Return what is said where code around a loop has caught what left a body, and the run ends there."""
    return (
        f"{cursor.body_left} left the body of step {cursor.step}, and was caught: what that body had still to do is not done, so "
        f"it does not count. The state is in {saved}. If the training was over, call run.finish() where you catch it"
    )
