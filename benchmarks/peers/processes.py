# SPDX-License-Identifier: Apache-2.0
"""Trainings in forked processes: torch is loaded once, and what is drawn or set in one is not seen by the next."""

import os
import select
import signal
import time
import traceback
from collections.abc import Callable


def forked(work: Callable[[], object]) -> int:
    """Start work in a process of its own and return the process's number."""
    number = os.fork()
    if number == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    return number


def in_a_process(work: Callable[[], object]) -> None:
    """Do work in a process of its own; a SIGKILL, which it may send itself, is fine, an exception is not."""
    status = os.waitstatus_to_exitcode(os.waitpid(forked(work), 0)[1])
    if status not in (0, -signal.SIGKILL):
        raise RuntimeError(f"a process ended with status {status}")


def killed_after(work: Callable[[Callable[[], None]], object], seconds: float) -> None:
    """Do work in a process of its own, and kill it so many seconds after it called what it was given."""
    reader, writer = os.pipe()

    def tell():
        os.write(writer, b"!")

    number = forked(lambda: work(tell))
    os.close(writer)
    try:
        if not select.select([reader], [], [], 60.0)[0] or not os.read(reader, 1):
            raise RuntimeError("a process ended, or a minute passed, before it had saved at all")
        time.sleep(seconds)
    finally:
        os.kill(number, signal.SIGKILL)  # it is ours until we have waited for it
        os.waitpid(number, 0)
        os.close(reader)


def kill_this_process() -> None:
    """Die as by `kill -9`."""
    os.kill(os.getpid(), signal.SIGKILL)
