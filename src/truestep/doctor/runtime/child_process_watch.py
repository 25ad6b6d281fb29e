# SPDX-License-Identifier: Apache-2.0
"""Watches the processes that a watched script starts itself, with multiprocessing or torch's spawn."""

import contextlib
import functools
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from truestep.core.trial_runs import call_trial_end_callbacks
from truestep.core.user_frames import is_library_file
from truestep.doctor.runtime.at_exit import WatchReportAtExit
from truestep.doctor.runtime.process_notes import WatchNotes, WatchNotesFolder
from truestep.doctor.runtime.watch import Watch, WatchOptions
from truestep.doctor.runtime.watch_schedule import StopWatching


@dataclass(frozen=True)
class ChildPlan:
    """How a process is watched, and where it leaves what was seen."""

    folder: WatchNotesFolder
    options: WatchOptions


@dataclass(frozen=True)
class WatchedProcess:
    """What a process was to run, under a watch of its own; it travels to spawned processes too."""

    target: Callable[..., Any]
    plan: ChildPlan

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run it, and leave notes however it ends."""
        plan = self.plan
        watch = Watch(plan.options)
        plan.folder.begin(watched_process_name())

        def end_watch_and_leave_notes(status: int = 0) -> int:
            watch.end()
            plan.folder.leave(collect_watch_notes(watch))
            return status

        with WatchReportAtExit(end_watch_and_leave_notes):
            try:
                with watch:
                    return self.target(*args, **kwargs)
            except StopWatching as over:
                call_trial_end_callbacks(over)
                return None
            finally:
                end_watch_and_leave_notes()


def collect_watch_notes(watch: Watch) -> WatchNotes:
    """Return what this process saw."""
    return WatchNotes(watched_process_name(), watch.history.num_steps, watch.findings, watch.failures)


def watched_process_name() -> str:
    """Return what this process is called in reports."""
    rank = os.environ.get("RANK")
    child = multiprocessing.current_process().name
    if rank is None:
        return child
    return f"rank {rank}" if child == "MainProcess" else f"{child} of rank {rank}"


@contextlib.contextmanager
def watched_children(
    watch: Watch, folder: WatchNotesFolder | None
) -> Iterator[Callable[[], WatchNotesFolder | None]]:
    """Within this, processes that the script starts are watched; yields what gives their folder, once there is one."""
    found: list[WatchNotesFolder] = [folder] if folder is not None else []
    if folder is not None and not is_reporting_process(folder):
        folder.begin(watched_process_name())
    original = BaseProcess.start

    @functools.wraps(original)
    def start(self: Any) -> None:
        if _runs_users_code(self):
            if not found:
                found.append(WatchNotesFolder(Path(tempfile.mkdtemp(prefix="truestep-doctor-"))))
            self._target = WatchedProcess(self._target, ChildPlan(found[0], watch.options))
        original(self)

    BaseProcess.start = start  # type: ignore[method-assign]
    try:
        yield lambda: found[0] if found else None
    finally:
        BaseProcess.start = original  # type: ignore[method-assign]


def _runs_users_code(process: Any) -> bool:
    """Tell whether a process runs the user's code itself, not a loader's or a pool's that calls it for data."""
    target = getattr(process, "_target", None)
    while isinstance(target, functools.partial):
        target = target.func
    if target is None or isinstance(target, WatchedProcess):
        return False
    module = sys.modules.get(getattr(target, "__module__", None) or type(target).__module__)
    name, file = getattr(module, "__name__", ""), getattr(module, "__file__", None)
    spawned_by_torch = name == "torch.multiprocessing.spawn"
    return spawned_by_torch or name == "__main__" or (file is not None and not is_library_file(file))


def is_reporting_process(shared: WatchNotesFolder | None) -> bool:
    """Tell whether this process reports: of those that torchrun started on a machine, the first does."""
    return shared is None or os.environ["LOCAL_RANK"] == "0"


def gather_notes(
    watch: Watch, folder: WatchNotesFolder | None, *, is_shared: bool, wait: bool
) -> tuple[list[WatchNotes], list[str]] | None:
    """Return what the other processes of the run saw, or None where another process reports.

    Args:
        watch: this process's.
        folder: where notes are left; None where no process but this one was watched.
        is_shared: whether torchrun started this process beside others: the first of them reports.
        wait: give the others a moment to end.
    """
    if folder is None:
        return [], []
    if is_shared and not is_reporting_process(folder):
        folder.leave(collect_watch_notes(watch))
        return None
    num_expected = int(os.environ["LOCAL_WORLD_SIZE"]) - 1 if is_shared else 0
    found = folder.collect(num_expected=num_expected, wait=wait)
    folder.remove()
    return found
