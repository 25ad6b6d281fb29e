# SPDX-License-Identifier: Apache-2.0
"""The garbage collector at rest: what makes many objects that all stay would have it go through all of them again and again."""

import contextlib
import gc
import threading
from collections.abc import Iterator

_lock = threading.Lock()
_resting = 0  # by how many callers, in all threads
_was_on = False


@contextlib.contextmanager
def pause_garbage_collector() -> Iterator[None]:
    """Let the garbage collector rest, in all threads: for work that is short and makes no garbage in circles."""
    global _resting, _was_on
    with _lock:
        if not _resting:
            _was_on = gc.isenabled()
            gc.disable()
        _resting += 1
    try:
        yield
    finally:
        with _lock:
            _resting -= 1
            if not _resting and _was_on:
                gc.enable()
