# SPDX-License-Identifier: Apache-2.0
"""Which sample each worker is at, in shared memory: a killed worker can't tell, so it tells beforehand."""

import multiprocessing
import os
import re
import signal
from collections.abc import Callable
from functools import partial
from typing import Any

from torch.utils.data._utils import worker as worker_loop

from truestep.core.os_specific import read_files_alone
from truestep.engine.data.unsendable_batches import send_reasons_for_unsent_batches

_FIELDS = 3  # process id, position, index


class WorkerProgress:
    """A shared table, one row a worker: `enter` runs in the worker, `sentence` in the training process."""

    def __init__(self, num_workers: int, start_method: str | None) -> None:
        self._num_workers = num_workers
        self.are_forked_by_other = (
            multiprocessing.get_context(start_method).get_start_method() == "forkserver"
        )
        """Whether the training process is not the parent of its workers."""
        # "Raw", without a lock: each worker writes to its own row, and one that is killed would never unlock it.
        self._table: Any = multiprocessing.get_context(start_method).RawArray("q", num_workers * _FIELDS)

    def enter(self, worker: int) -> None:
        """Let `note_sample` of this process write into the row of `worker`."""
        _mine.table, _mine.row = self._table, worker * _FIELDS
        self._table[_mine.row] = os.getpid()

    def places(self) -> list[int]:
        """Return the whole table: another one later means that a worker read on."""
        return [*self._table]

    def describe_workers(self, message: str) -> str:
        """Return what the workers named in torch's `message` were doing."""
        pids = {int(pid) for pid in re.findall(r"\d+", message)}
        rows = [tuple(self._table[i * _FIELDS : (i + 1) * _FIELDS]) for i in range(self._num_workers)]
        named = [f"sample {index} (position {position})" for pid, position, index in rows if pid in pids]
        return f"while it was loading {' and '.join(named)}" if named else "before it loaded anything"


class _OwnProgressRow:
    table: Any = None
    row = 0


_mine = _OwnProgressRow()


def note_sample(position: int, index: int) -> None:
    """Write down, in a worker, that this sample is being loaded."""
    if _mine.table is not None:
        _mine.table[_mine.row + 1] = position
        _mine.table[_mine.row + 2] = index


class _Watchdog:
    """What torch's loop of a worker asks whether anybody waits for its batches.

    torch's own takes the parent that a worker has when its loop begins for the training process (`ManagerWatchdog.__init__`). Where
    that was killed before, it is the system's first process, which never ends: such a worker would stay for ever.
    """

    def __init__(self, parent: Any, *, is_parent: bool) -> None:
        self._parent, self._is_parent = parent, is_parent

    def is_alive(self) -> bool:
        """Whether the training process is alive."""
        # of a forked worker the pipe alone would not do: workers that were forked later hold it open, too
        return bool(os.getppid() == self._parent.pid if self._is_parent else self._parent.is_alive())


def _watch_training_process(progress: WorkerProgress) -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        made = partial(_Watchdog, parent, is_parent=not progress.are_forked_by_other)
        worker_loop.ManagerWatchdog = made  # type: ignore[misc,assignment] # in this process, which is a worker alone


def prepare_worker(progress: WorkerProgress, user: Callable[[int], None] | None, worker: int) -> None:
    """Prepare this process, which is worker number `worker`; `user` prepares it too."""
    # Ctrl+C and a scheduler's warning are meant for the training process, which finishes the batch
    # in hand: its workers leave its process group, and do not mind when they are told one by one
    if hasattr(os, "setpgrp"):
        os.setpgrp()
        _watch_training_process(progress)
    for name in ("SIGINT", "SIGUSR1"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    read_files_alone()
    progress.enter(worker)
    send_reasons_for_unsent_batches()
    if user is not None:
        user(worker)
