# SPDX-License-Identifier: Apache-2.0
"""Whether there is memory for a copy of a state, and for keeping it until the next save."""

import os
from enum import Enum

from truestep.core.control_groups import free_memory
from truestep.core.text_formatting import bytes_text
from truestep.core.user_frames import warn_user

MIN_ASKED_BYTES = 32 << 20  # a smaller copy is made and kept in any case


class CopyMemoryAvailability(Enum):
    """What there is memory for."""

    TO_KEEP = "twice the state is free: the copy is kept, since memory in use is filled several times as fast"
    TO_COPY = "the state is free: the copy is given back while it is written"
    NONE = "less is free: the training waits while the state is written"


class CopyMemoryChecker:
    """Finds out before each save; where there is no memory for a copy it says so once.

    Of processes that copy at the same time on one machine (`num_copying`) each has its share of what is free.
    """

    def __init__(self, num_copying: int = 1, *, may_keep: bool = True) -> None:
        self._num_copying, self._may_keep = num_copying, may_keep
        self._said = False

    def find(self, num_bytes: int, held_bytes: int, *, must_copy: bool) -> CopyMemoryAvailability:
        """Return what there is memory for, beside the `held_bytes` that the last copy has left."""
        if num_bytes < MIN_ASKED_BYTES:
            return CopyMemoryAvailability.TO_KEEP
        free = free_memory()
        here = free.num_bytes // self._num_copying + held_bytes
        if here >= 2 * num_bytes and self._may_keep:
            return CopyMemoryAvailability.TO_KEEP
        if here >= num_bytes or must_copy:
            return CopyMemoryAvailability.TO_COPY
        if not self._said:
            self._said = True
            warn_user(_not_enough_memory_message(num_bytes, here, free.of))
        return CopyMemoryAvailability.NONE


def processes_on_this_machine() -> int:
    """Return how many processes the launcher started here, as torchrun says."""
    number = os.environ.get("LOCAL_WORLD_SIZE", "")
    return max(1, int(number)) if number.isdigit() else 1


def _not_enough_memory_message(num_bytes: int, here: int, of: str) -> str:
    return (
        f"A save in the background copies the state first, which takes {bytes_text(num_bytes)}, and {of} has {bytes_text(here)} "
        "free. So the training waits while this checkpoint is written, and at every later save before which less than the state is "
        "free, as with ts.Saving(background=False); the checkpoint is the same. With more memory, or a smaller batch or "
        "micro_batch=, saves take place beside the training again."
    )
