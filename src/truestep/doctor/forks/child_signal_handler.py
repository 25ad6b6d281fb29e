# SPDX-License-Identifier: Apache-2.0
"""The program's own handler of children that end, kept from being told of a child that is none of its."""

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def suspended_sigchld_handler() -> Iterator[None]:
    """Within this, the handler of SIGCHLD rests; it is called afterwards if a child of the program's has ended meanwhile."""
    handler = signal.getsignal(signal.SIGCHLD)
    if handler is signal.SIG_DFL or handler is None:
        yield
        return
    before = _ended_children()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGCHLD, handler)
        if callable(handler) and _ended_children() - before:
            signal.raise_signal(signal.SIGCHLD)


def _ended_children() -> set[int]:
    """Return the children of this process that have ended and that nobody has asked about."""
    found: set[int] = set()
    for listed in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):  # the thread has ended
            found.update(map(int, listed.read_text("ascii").split()))
    return {each for each in found if _has_ended(each)}


def _has_ended(process: int) -> bool:
    try:
        text = Path(f"/proc/{process}/stat").read_text("utf-8", "replace")
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] == "Z"
