# SPDX-License-Identifier: Apache-2.0
"""The checkpoints of one run: saved beside the training, pruned, chosen, and brought back."""

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from truestep.checkpoints.background_writer import BackgroundCheckpointWriter
from truestep.checkpoints.checkpoint import Checkpoint, PassedOver
from truestep.checkpoints.checkpoint_commit import (
    PendingCheckpoint,
    SharedCheckpointFolder,
    commit_checkpoint,
    make_temporary_folder,
)
from truestep.checkpoints.checkpoint_names import (
    checkpoint_folder_name,
    committed_checkpoints,
    next_unused_sequence,
)
from truestep.checkpoints.checkpoint_removal import (
    prune_checkpoints,
    remove_partial_checkpoints,
    undamaged_checkpoints,
)
from truestep.checkpoints.checkpoint_selection import (
    MID_STEP,
    ChosenCheckpoint,
    choose_checkpoint,
    mid_step_refusal,
    read_checkpoints,
    warn_of_unused_checkpoints,
)
from truestep.checkpoints.file_operations import CheckpointFiles
from truestep.checkpoints.lock import RunLock
from truestep.checkpoints.manifest import CheckpointSummary, Manifest
from truestep.checkpoints.resume_attempts import (
    MAX_ATTEMPTS,
    clear_attempts,
    count_attempts,
    decrement_attempts,
    mark_unfit_checkpoints,
    record_attempt,
    record_run_end_at_checkpoint,
    unfit_checkpoints,
)
from truestep.checkpoints.retention import Retention
from truestep.checkpoints.state_codec import encode_state
from truestep.core.argument_errors import methods_raise_option_errors
from truestep.core.errors import CheckpointError, OptionError
from truestep.core.missing_attribute_hints import HelpfulAttributes

if TYPE_CHECKING:
    from truestep.checkpoints.prepare import CheckpointPreparer

UNHEALTHY = "it was not marked healthy when it was saved"
UNFIT = "the run that went on from it needed what it had computed before the save"


class Stall(NamedTuple):
    """Seconds for which saving held up the caller."""

    last: float
    total: float


class Resumed(NamedTuple):
    """What a run goes on from."""

    checkpoint: Checkpoint
    state: Any


@methods_raise_option_errors("store")
class CheckpointStore(HelpfulAttributes):
    """The checkpoints in a directory, which this process alone writes to until `close`.

    A state is a tree of dicts, lists and tuples whose leaves are tensors or None, bool, int, float or str.
    With `background=True` a save copies the tensors and returns; a thread does the rest, and what it fails
    with is raised by the next call. Raises RunDirectoryError where another process has the directory.
    """

    _called, _variable = "A ts.CheckpointStore", "store"

    def __init__(
        self,
        directory: str | Path,
        *,
        retention: Retention | None = None,
        background: bool = True,
        files: CheckpointFiles | None = None,
    ) -> None:
        self.directory = Path(directory).resolve()  # the folder may be a link to a larger disk
        self.retention = _check_retention(retention)
        self.background = background
        self.stall_seconds = Stall(0.0, 0.0)
        self._damaged: set[str] = set()
        self._known: dict[str, Manifest] = {}  # without tensors, by the checksum of what is on disk
        self._files = files or CheckpointFiles()
        self.others: Callable[[Path], Callable[[], list[int]]] | None = None
        """Where a state is divided among processes: what tells the others of the folder that they write in, too. What it returns
        waits for them, returns their ranks, and raises a CheckpointError where one can't write. A thread does it in any case."""
        self.pinned: Callable[[], Collection[int]] = tuple
        """The numbers of the checkpoints that somebody reads and that stay meanwhile."""
        self._preparing: CheckpointPreparer | None = None
        self._lock = self._lock_directory()
        self._writer = BackgroundCheckpointWriter()

    def _lock_directory(self) -> RunLock:
        with self._naming_directory_in_errors():
            self._files.make_folders(self.directory)
            lock = RunLock(self.directory, self._files)
            try:
                # Under the lock alone: what looks like a leftover may be the save of whoever holds it.
                remove_partial_checkpoints(self._files, self.directory)
                self._sequence = next_unused_sequence(self._files, self.directory)
            except BaseException:
                lock.release()
                raise
        return lock

    @contextmanager
    def _naming_directory_in_errors(self) -> Iterator[None]:
        """Say which directory it was that the operating system failed on."""
        try:
            yield
        except OSError as error:
            raise CheckpointError(f"The directory {self.directory} can't be used: {error}.") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except CheckpointError as own:
            if error is None:
                raise
            error.add_note(f"Besides: {own}")

    def save(
        self,
        step: int,
        state: dict[str, Any],
        *,
        reason: str = "periodic",
        metrics: dict[str, float] | None = None,
        healthy: bool = True,
        complete: bool = True,
        only_if: Callable[[], bool] | None = None,
        keep: int | None = None,
    ) -> bool:
        """Save a state; in the background everything may be changed as soon as this returns.

        One save is in flight at a time: another waits for it. `healthy=False` says that the state is no
        target for a rollback, `complete=False` that it was taken in the middle of a step and is no state to
        go on from. `only_if` is asked when a copy of the state has been taken, and may change what it was
        taken from: where it says no, nothing is saved and False is returned. The checkpoint of number `keep`
        outlives this save, whatever the retention says.
        """
        self._check_open()
        started = time.perf_counter()
        asked = 0.0
        try:
            self._writer.wait()
            summary = CheckpointSummary(
                sequence=self._sequence,
                step=_check_step_number(step),
                reason=_check_value_type(reason, "reason", str),
                healthy=_check_value_type(healthy, "healthy", bool),
                complete=_check_value_type(complete, "complete", bool),
                metrics=_encode_metrics(metrics or {}),
            )
            pending = self._copy_state_for_writing(state, summary, asks=only_if is not None)
            if only_if is not None:
                before = time.perf_counter()
                goes_on = only_if()
                asked = time.perf_counter() - before  # the caller's own time, and no stall
                if not goes_on:
                    return False
            self._sequence += 1  # used up even if the save fails
            pending = self._shared(pending)
            if self.background or pending.shared is not None:
                pending.copying.share(self._writer.start, lambda: self._commit_and_prune(pending, keep))
            else:
                self._commit_and_prune(pending, keep)
            return True
        finally:
            last = time.perf_counter() - started - asked
            self.stall_seconds = Stall(last, self.stall_seconds.total + last)

    def _copy_state_for_writing(
        self, state: Any, summary: CheckpointSummary, *, asks: bool
    ) -> PendingCheckpoint:
        """Take a copy of a state, or of a first one let the writer take its share, unless it is asked first whether to write."""
        # imported here so that looking at checkpoints needs no torch
        from truestep.checkpoints.copy_memory_check import CopyMemoryChecker, processes_on_this_machine
        from truestep.checkpoints.prepare import CheckpointPreparer
        from truestep.checkpoints.snapshot import CheckpointStagingBuffers

        copies = self.background or asks
        if self._preparing is None or (copies and not self._preparing.copies):
            num_copying = 1 if self.others is None else processes_on_this_machine()
            room = CopyMemoryChecker(num_copying, may_keep=self.background)
            self._preparing = CheckpointPreparer(CheckpointStagingBuffers(room) if copies else None)
        layout, images, tree, copying = self._preparing.prepared(state, may_share=not asks)
        return PendingCheckpoint(summary=summary, layout=layout, images=images, state=tree, copying=copying)

    def _shared(self, pending: PendingCheckpoint) -> PendingCheckpoint:
        """Make the folder that others write in, and tell them of it, where there are others."""
        if self.others is None:
            return pending
        with self._naming_directory_in_errors():
            folder = make_temporary_folder(
                self._files, self.directory, checkpoint_folder_name(pending.summary)
            )
        return replace(pending, shared=SharedCheckpointFolder(folder, self.others(folder)))

    def _commit_and_prune(self, pending: PendingCheckpoint, keep: int | None) -> None:
        name = checkpoint_folder_name(pending.summary)
        self._check_open()
        try:
            # At the last moment: a lock file that was removed since the start lets another process take the directory.
            self._lock.check()
            done = commit_checkpoint(self._files, self.directory, pending)
        except OSError as error:
            raise CheckpointError(
                f"The checkpoint {name} ({pending.bytes:,} bytes) could not be written to "
                f"{self.directory}: {error}. "
                "What was saved before is untouched."
            ) from error
        try:
            # Only a whole checkpoint shows that the run got on; one from the middle of a step is no state to go on from.
            if pending.summary.complete:
                clear_attempts(self._files, self.directory)
            self._known[done.checksum] = replace(done.manifest, state=None)
            self._prune_checkpoints({*self.pinned()} if keep is None else {keep, *self.pinned()})
        except OSError as error:
            raise CheckpointError(
                f"The checkpoint {name} is saved, but older ones in {self.directory} could not be removed: "
                f"{error}."
            ) from error

    def _prune_checkpoints(self, also: Collection[int]) -> None:
        prune_checkpoints(self._files, self.directory, self.retention, self._damaged, self._known, also=also)
        there = committed_checkpoints(self._files, self.directory)
        self._known = {
            key: known for key, known in self._known.items() if checkpoint_folder_name(known.summary) in there
        }

    def wait(self) -> None:
        """Return when nothing is in flight; raises what the writer failed with."""
        self._writer.wait()

    def close(self) -> None:
        """Finish the save in flight and let go of the directory; raises what the writer failed with."""
        try:
            # In a forked child it is not, nor is there a thread to wait for.
            if self._lock.held:
                self._writer.close()
        finally:
            if not self._writer.busy:  # interrupted while waiting: the lock stays as long as the process does
                self._lock.release()
                self._preparing = None  # its memory is as large as the state

    @property
    def next_sequence(self) -> int:
        """The number of the checkpoint that is saved next; another process that saved would have moved it."""
        return self._sequence

    def checkpoints(self) -> list[Checkpoint | PassedOver]:
        """Return what is there, newest first: checkpoints, and the damaged ones with the reason."""
        self._writer.wait()
        with self._naming_directory_in_errors():
            return list(read_checkpoints(self._files, self.directory))

    def usable(self) -> list[Checkpoint]:
        """Return those of which nothing wrong is known, newest first; their contents are not read."""
        self._writer.wait()
        with self._naming_directory_in_errors():
            return undamaged_checkpoints(self._files, self.directory, self._damaged)

    def newest(
        self,
        *,
        healthy: bool = False,
        incomplete: bool = False,
        use: Callable[[Checkpoint], Any] = Checkpoint.verify,
    ) -> Checkpoint | None:
        """Return the newest checkpoint of which every byte is as it was written; None where there is none.

        Ones from the middle of a step are left out unless asked for. `use` raises a DamagedError for one that is damaged. Raises
        CheckpointError where there are only damaged ones, or the newest was written by a newer version.
        """
        self._writer.wait()

        def refuse(checkpoint: Checkpoint) -> str | None:
            if healthy and not checkpoint.summary.healthy:
                return UNHEALTHY
            return None if incomplete else mid_step_refusal(checkpoint)

        choice = self._choose_checkpoint(refuse, use)
        self._remember_damaged_checkpoints(choice)
        return choice.checkpoint

    def resume(self, use: Callable[[Checkpoint], Any] = Checkpoint.load) -> Resumed | None:
        """Return what to go on from, read by `use`, and count the attempt; None where there is nothing.

        A checkpoint from which three runs began and none reached its next save is passed over, unless there
        is no other; one that `give_up` was told of always is. Raises CheckpointError where there are only damaged
        ones, or the newest is of a newer version.
        """
        self._check_open()
        self._writer.wait()
        with self._naming_directory_in_errors():
            attempts = count_attempts(self._files, self.directory)
            never = unfit_checkpoints(self._files, self.directory)
        tired = {name: made for name, made in attempts.items() if made >= MAX_ATTEMPTS}

        def refuse(checkpoint: Checkpoint) -> str | None:
            return UNFIT if checkpoint.name in never else mid_step_refusal(checkpoint)

        choice = self._choose_less_tried_checkpoint(tired, refuse, use) if tired else None
        if choice is None:
            choice = self._choose_checkpoint(refuse, use)
        self._remember_damaged_checkpoints(choice)
        if choice.checkpoint is None:
            return None
        with self._naming_directory_in_errors():
            record_attempt(self._files, self.directory, choice.checkpoint.name)
        return Resumed(choice.checkpoint, choice.result)

    def _choose_less_tried_checkpoint(
        self,
        tired: dict[str, int],
        refuse: Callable[[Checkpoint], str | None],
        use: Callable[[Checkpoint], Any],
    ) -> ChosenCheckpoint | None:
        """Choose among those that have not been tried too often; None where none of them can be used."""

        def refuse_often_tried(checkpoint: Checkpoint) -> str | None:
            if made := tired.get(checkpoint.name):
                return f"{made} runs went on from it, and none of them reached its next save"
            return refuse(checkpoint)

        try:
            choice = self._choose_checkpoint(refuse_often_tried, use)
        # All others are damaged: the one that was tried too often is still better than none.
        except CheckpointError:
            return None
        return choice if choice.checkpoint else None

    def give_up(self, names: Iterable[str]) -> None:
        """Say that no run can go on from these checkpoints: until the next save they are passed over."""
        self._check_open()
        with self._naming_directory_in_errors():
            mark_unfit_checkpoints(self._files, self.directory, names)

    def forget_attempts(self, ended: str | None = None) -> None:
        """Say that what went on from here did not die: a run that ended well without another save, and how."""
        self._check_open()
        with self._naming_directory_in_errors():
            clear_attempts(self._files, self.directory)
            if ended and (names := committed_checkpoints(self._files, self.directory)):
                record_run_end_at_checkpoint(self._files, self.directory, names[0], ended)

    def forget_attempt(self, name: str) -> None:
        """Say that a start from this checkpoint did not die of it: it was refused, or the user's own code raised."""
        self._check_open()
        with self._naming_directory_in_errors():
            decrement_attempts(self._files, self.directory, name)

    def _choose_checkpoint(
        self, refuse: Callable[[Checkpoint], str | None], use: Callable[[Checkpoint], Any]
    ) -> ChosenCheckpoint:
        with self._naming_directory_in_errors():
            return choose_checkpoint(self._files, self.directory, refuse, use)

    def _remember_damaged_checkpoints(self, choice: ChosenCheckpoint) -> None:
        """Warn of what was passed over, and remember what is damaged: it counts for nothing from now on."""
        passed = [item for item in choice.passed_over if item.reason not in (UNHEALTHY, MID_STEP)]
        warn_of_unused_checkpoints(self.directory, passed)
        self._damaged |= {item.name for item in passed if item.damaged}

    def _check_open(self) -> None:
        if not self._lock.held:
            raise CheckpointError(
                f"The store of {self.directory} is closed, or was opened by the process this one was forked from, which alone "
                "writes to it."
            )


def _check_step_number(step: Any) -> int:
    if type(step) is not int or step < 0:
        raise CheckpointError(f"A checkpoint's step is {step!r}; it is the number of steps done, 0 or more.")
    return step


def _check_value_type(value: Any, name: str, kind: type) -> Any:
    """Return a value that the manifest can be read back with; one of another type would make a damaged checkpoint."""
    if type(value) is not kind:
        raise CheckpointError(f"{name}={value!r}: a checkpoint's {name} is a {kind.__name__}.")
    return value


def _check_retention(retention: Any) -> Retention:
    if not isinstance(retention, Retention | None):
        raise OptionError(f"retention={retention!r}: write ts.Retention(last=2), which says what to keep.")
    return retention or Retention()


def _encode_metrics(metrics: dict[str, float]) -> dict[str, Any]:
    if not isinstance(metrics, dict) or not all(isinstance(name, str) for name in metrics):
        raise CheckpointError(
            f"metrics={metrics!r}: give a dict of names and numbers, metrics={{'loss': 0.5}}."
        )
    encoded = encode_state(metrics)
    if encoded.leaves:
        raise CheckpointError(f"The metric {encoded.leaves[0].name!r} is a tensor; save float(value).")
    tree: dict[str, Any] = encoded.tree["dict"]
    return tree
