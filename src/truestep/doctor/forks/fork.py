# SPDX-License-Identifier: Apache-2.0
"""Forks this process, has a sealed child work, and waits for what it tells; the process itself stays as it was."""

import contextlib
import json
import os
import random
import select
import signal
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Never

from truestep.doctor.forks.child_signal_handler import suspended_sigchld_handler
from truestep.doctor.forks.fork_obstacles import why_no_fork

NOT_SEALED = b"not sealed: "  # begins what is told in place of results
SECONDS = 10.0  # after so long a child is killed


@dataclass(frozen=True)
class ForkOutcome:
    """What a child told, or why it told nothing."""

    value: Any = None
    failure: str | None = None


def run_in_sealed_child(
    work: Callable[[], Any], *, seconds: float = SECONDS, num_bytes: int = 0
) -> ForkOutcome:
    """Return what `work()` returns, as JSON carries it, run in a forked child that can change nothing outside of it.

    Args:
        work: runs in the child, on a copy of everything there is.
        seconds: after so long the child is killed.
        num_bytes: what it will write, about; where so much memory is not free, nothing is forked.
    """

    def run_child(parent: int, channel: int) -> None:
        from truestep.doctor.forks.child import run_as_sealed_child  # for Linux alone

        run_as_sealed_child(parent, work, channel, seconds)

    told = _run_in_fork(run_child, seconds, num_bytes)
    return told if isinstance(told, ForkOutcome) else _parse_outcome(told)


def continue_in_sealed_child(
    *, seconds: float = SECONDS, num_bytes: int = 0
) -> "bytes | ForkOutcome | ContinuingChild":
    """Fork; return in the sealed child what it tells its results by, and later in this process all that it told.

    The child goes on behind this call, through whatever code comes, until it tells something or its time is over. In this process
    comes what it told, as it was written, or why it told nothing.
    """
    born: list[ContinuingChild] = []

    def seal_child(parent: int, channel: int) -> None:
        from truestep.doctor.forks.child import seal_or_exit

        seal_or_exit(parent, channel, seconds, NOT_SEALED)
        born.append(ContinuingChild(channel))

    told = _run_in_fork(seal_child, seconds, num_bytes)
    if born:
        return born[0]
    if isinstance(told, ForkOutcome):
        return told
    if told.ended_by is not None:
        return ForkOutcome(failure=f"the child {told.ended_by}")
    if told.written.startswith(NOT_SEALED):
        return ForkOutcome(failure=told.written.removeprefix(NOT_SEALED).decode())
    return told.written or ForkOutcome(failure="the child ended without a word")


@dataclass(frozen=True)
class ContinuingChild:
    """The life of a sealed child that goes on with the program's code."""

    channel: int

    def tell(self, written: bytes) -> Never:
        """Write this to the process that forked, and end."""
        from truestep.doctor.forks.child import exit_at_once

        try:
            with os.fdopen(self.channel, "wb", closefd=False) as file:
                file.write(written)
        finally:
            exit_at_once()


@dataclass(frozen=True)
class _ChildOutput:
    """All that a child wrote, and what ended it if that was not the child itself."""

    written: bytes
    ended_by: str | None


def _run_in_fork(
    live: Callable[[int, int], None], seconds: float, num_bytes: int
) -> _ChildOutput | ForkOutcome:
    """Fork, have the child live, and hear it; in a child whose life returns, return something that means nothing."""
    obstacle = why_no_fork(num_bytes)
    if obstacle is not None:
        return ForkOutcome(failure=obstacle)
    try:
        reading, writing = os.pipe()
    except OSError as error:
        return ForkOutcome(failure=f"no pipe to a child can be opened: {error.strerror}")
    parent = os.getpid()
    try:
        with suspended_sigchld_handler():
            return _fork_and_read(live, (reading, writing), seconds)
    except OSError as error:
        return ForkOutcome(failure=f"this process can't be forked: {error.strerror or error}")
    finally:
        if os.getpid() == parent:
            os.close(reading)


def _fork_and_read(live: Callable[[int, int], None], pipe: tuple[int, int], seconds: float) -> _ChildOutput:
    from truestep.doctor.forks.child import exit_at_once

    parent, (reading, writing) = os.getpid(), pipe
    is_alive = False
    try:
        child = _fork()
        if child == 0:
            live(parent, writing)
            is_alive = True
            return _ChildOutput(b"", None)
    finally:
        if os.getpid() != parent and not is_alive:  # an interrupt between the fork and the child's own life
            exit_at_once()
        if os.getpid() == parent:
            os.close(writing)
    try:
        handle = os.pidfd_open(child)
    except OSError:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise
    try:
        told, is_late = _read_until_end(reading, handle, seconds)
    finally:
        status = _end_and_reap(handle)
        os.close(handle)
    return _ChildOutput(told, f"took longer than {seconds:g} s" if is_late else _cause_of_end(status))


def _fork() -> int:
    """Fork, without the warning that Python 3.12 gives where threads run: those are known here.

    The filter is put in place without a word to `warnings`, which would have warnings shown again that were shown before.
    """
    from posix import fork  # os.fork may be wrapped

    state, silent = random.getstate(), ("ignore", None, DeprecationWarning, None, 0)
    warnings.filters.insert(0, silent)  # type: ignore[attr-defined]
    try:
        process = fork()
    finally:
        warnings.filters.remove(silent)  # type: ignore[attr-defined]
    if process == 0:
        random.setstate(state)  # Python gives each forked process another one
    return process


def _read_until_end(reading: int, handle: int, seconds: float) -> tuple[bytes, bool]:
    """Read until the child has ended, or has had its time; return what it wrote, and whether it was late."""
    told, until = bytearray(), time.monotonic() + seconds
    waiting = select.poll()
    for each in (reading, handle):
        waiting.register(each, select.POLLIN)
    os.set_blocking(reading, False)
    while (left := until - time.monotonic()) > 0:
        ready = {descriptor for descriptor, _ in waiting.poll(left * 1000)}
        if reading in ready:
            chunk = os.read(reading, 1 << 16)
            told += chunk
            if not chunk:
                waiting.unregister(reading)
        elif handle in ready:
            return bytes(told), False
    return bytes(told), True


def _end_and_reap(handle: int) -> int | None:
    """End a child that has not ended, and take note of its end; return its status, None where somebody else took it."""
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    try:
        found = os.waitid(os.P_PIDFD, handle, os.WEXITED)
    except ChildProcessError:
        return None
    return (
        None if found is None else (-found.si_status if found.si_code != os.CLD_EXITED else found.si_status)
    )


def _cause_of_end(status: int | None) -> str | None:
    if status is None or status == 0:
        return None
    return f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"


def _parse_outcome(told: _ChildOutput) -> ForkOutcome:
    if told.ended_by is not None:
        return ForkOutcome(failure=f"the child {told.ended_by}")
    try:
        found = json.loads(told.written)
    except ValueError:
        return ForkOutcome(failure="the child ended without a word")
    return ForkOutcome(found.get("value"), found.get("failure"))
