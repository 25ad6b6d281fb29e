# SPDX-License-Identifier: Apache-2.0
"""How a run stands, as far as its folder tells: running, finished, stopped, interrupted or damaged."""

import json
import signal
from pathlib import Path
from typing import NamedTuple

from truestep.checkpoints.checkpoint import Checkpoint, PassedOver
from truestep.checkpoints.checkpoint_names import FOLDER
from truestep.checkpoints.checkpoint_selection import read_checkpoints
from truestep.checkpoints.file_operations import CheckpointFiles
from truestep.checkpoints.lock import is_lock_held
from truestep.checkpoints.resume_attempts import recorded_run_end_at_checkpoint
from truestep.checkpoints.state_codec import state_children, state_subtree
from truestep.core.atomic_files import read_regular_file
from truestep.core.errors import CheckpointError
from truestep.report.run_file_names import CONFIG

SCRIPT_ENDED = "its script ended"


class ReportedState(NamedTuple):
    """One word, and why it is so; None where there is nothing to say."""

    word: str
    why: str | None = None


def reported_state(directory: Path, last_step: int) -> ReportedState:
    """Return the state of the run in a folder; `last_step` is the last one of its metrics.

    Reads the newest checkpoint's manifest and the sizes of its files: `truestep checkpoints verify` reads all of them.
    """
    # First: whoever holds the lock trains, whatever its folder looks like just now.
    held = is_lock_held(directory / FOLDER)
    if held:
        return ReportedState("running")
    if (problem := _config_problem(directory)) is not None:
        return problem
    has_any = (directory / FOLDER).is_dir()
    newest = next(iter(read_checkpoints(CheckpointFiles(), directory / FOLDER)), None) if has_any else None
    if isinstance(newest, PassedOver):
        return ReportedState("unknown" if newest.newer else "damaged", f"{newest.name}: {newest.reason}")
    if newest is not None and (damage := _first_missing_file(newest)):
        return ReportedState("damaged", f"{newest.name}: {damage}")
    ended = _run_ending_state(directory / FOLDER, newest, last_step)
    if held is None and ended.word == "interrupted":
        return ReportedState("unknown", "it was last trained on another machine, and may run there")
    return ended


def _config_problem(directory: Path) -> ReportedState | None:
    try:
        if isinstance(json.loads(read_regular_file(directory / CONFIG)), dict):
            return None
        return ReportedState("damaged", f"{CONFIG} holds no configuration")
    except FileNotFoundError:
        return ReportedState("unknown", f"there is no {CONFIG}: another program wrote it")
    except (OSError, ValueError, RecursionError) as error:
        return ReportedState("damaged", f"{CONFIG} can't be read: {error}")


def _first_missing_file(checkpoint: Checkpoint) -> str | None:
    """Name the first file of a checkpoint that is gone or of another size."""
    for name, entry in checkpoint.manifest.files.items():
        try:
            size = (checkpoint.path / name).stat().st_size
        except OSError as error:
            return f"{name} can't be read: {error.strerror}"
        if size != entry.bytes:
            return f"{name} has {size:,} bytes of {entry.bytes:,}"
    return None


def _run_ending_state(folder: Path, newest: Checkpoint | None, last_step: int) -> ReportedState:
    """Say how a run ended that nobody trains any more, by why its newest checkpoint was saved, or what was noted beside it."""
    if newest is None:
        return ReportedState("interrupted", "it ended before its first checkpoint")
    kind, _, name = newest.summary.reason.partition(" ")
    if kind == "exception":
        return ReportedState("interrupted", f"{name} after step {newest.step:,}")
    # With metrics beyond the newest checkpoint it went on after that one, and nobody said why it stopped.
    if last_step <= newest.step:
        kind = recorded_run_end_at_checkpoint(CheckpointFiles(), folder, newest.name) or kind
        if kind == "finished":
            return ReportedState("finished")
        if kind == "signal":
            return ReportedState("stopped", f"by {_signal_name(name)} after step {newest.step:,}")
        if kind == "closed" and not newest.step and not _num_updates(newest):
            return ReportedState("finished", "it made no update")
        if kind == "closed":
            return ReportedState("stopped", _script_ended_text(newest))
    return ReportedState("interrupted", f"it was killed; it goes on from step {newest.step:,}")


def _script_ended_text(newest: Checkpoint) -> str:
    """Say how far it came: in batches, or in updates where it counted none."""
    updates = 0 if newest.step else _num_updates(newest)
    if not updates:
        return f"{SCRIPT_ENDED} after step {newest.step:,}"
    return f"it counted no batch (run.batches) and made {updates:,} update{'s' if updates > 1 else ''}; {SCRIPT_ENDED}"


def _num_updates(checkpoint: Checkpoint) -> int:
    """Return how many updates all learners have made; 0 for a checkpoint that tells of none."""
    try:
        learners = state_children(state_subtree(checkpoint.manifest.state, ("learners",))) or {}
        return sum(checkpoint.value("learners", name, "counters", "updates") for name in learners)
    except (CheckpointError, TypeError):
        return 0


def _signal_name(number: str) -> str:
    try:
        return signal.Signals(int(number)).name
    except ValueError:
        return f"signal {number}"
