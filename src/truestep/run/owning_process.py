# SPDX-License-Identifier: Apache-2.0
"""Whose run it is: one process, and in it one thread, act for a run; whatever is forked from it does not.

A forked process (a data worker, say) holds copies of everything: the hook for uncaught exceptions, signal handlers, the weights as
they were. torch's workers even call the inherited hook when the process that trains is gone. So what a run has put in place is
taken away in each child, and whoever acts looks at the process it is in besides: not every fork is one that Python sees.
"""

import os
import threading
import weakref
from pathlib import Path
from typing import Protocol

from truestep.core.errors import OptionError, RunDirectoryError


class RunOwner:
    """The process and the thread that a run was made in."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.thread = threading.current_thread()
        self.follower: Path | None = None
        """The directory, once another run of this process has taken it over."""

    @property
    def is_this_process(self) -> bool:
        """Whether this is the process that made the run, and none that was forked from it."""
        return os.getpid() == self.process

    @property
    def is_here(self) -> bool:
        """Whether this is the run's process, and in it the run's thread or the main one."""
        return self.is_this_process and threading.current_thread() in (self.thread, threading.main_thread())

    def check(self) -> None:
        """Raise a RunDirectoryError in any other process, and once another run has taken the directory over."""
        # a cell that was run again has made the run anew: the old handle must not write over the new one
        if self.follower is not None:
            raise RunDirectoryError(
                f"This run is over: another ts.Run of {self.follower} was made after it in this process, and a directory is one "
                "run's. Go on with the newer one, or give the second training a directory of its own."
            )
        if os.getpid() != self.process:
            raise RunDirectoryError(
                f"This run was made by process {self.process}, and this is process {os.getpid()}, forked from it: what it did "
                "would be saved over what its parent does. Send results to the parent, and use the run there; or make a ts.Run in "
                "a directory of its own in this process."
            )


class RunDirectoryHolder(Protocol):
    """Whoever holds the directory of a run in this process."""

    def give_up(self) -> None:
        """Let go of it; of several processes all at once, since where a run ends they meet."""


# Weak: a run that somebody dropped must be free to go, and holds nothing any more.
HOLDERS: "weakref.WeakValueDictionary[str, RunDirectoryHolder]" = weakref.WeakValueDictionary()
"""By the directory's real path."""


def take_over_run_directory(directory: Path) -> None:
    """Have an older run of this process let go of the directory."""
    key = os.path.realpath(directory)
    if (previous := HOLDERS.get(key)) is not None:
        # the newer handle is the one that the user means: a cell was run again
        previous.give_up()
        HOLDERS.pop(key, None)


def folder_of_running_loop(*, without_learners: bool = False) -> Path | None:
    """Return the directory of the run whose loop runs, of several in this process the newest; or of one without a learner."""
    # what keeps the place of a library's trainer has no loop
    asked = "loops_without_learners" if without_learners else "loops"
    found = [key for key, each in [*HOLDERS.items()] if getattr(each, asked, False)]
    return Path(found[-1]) if found else None


def refuse_later_process_group(world_size: int, strategy: str) -> None:
    """Raise an OptionError where a process group has come up that the run does not know of, and is to be a part of."""
    import torch.distributed

    if strategy == "single":
        return
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        size = torch.distributed.get_world_size()
        if size not in (1, world_size):
            raise OptionError(
                f"A process group of {size} was made after ts.Run, which goes by what it finds when it is made: here {world_size} "
                "process. Call init_process_group before ts.Run, or leave it to the run: it makes the group under torchrun and the "
                "like."
            )
