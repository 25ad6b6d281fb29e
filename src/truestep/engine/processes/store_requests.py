# SPDX-License-Identifier: Apache-2.0
"""Asking the store from threads of their own, since torch waits without a limit for one whose process is stopped.

They are daemons: one that never gets its answer must not keep the process from ending. One that gets it while Python is being taken
down aborts the process (status -6: C++ can't be left there as Python leaves a thread), so the end waits a little for each.
"""

import threading
import time
from collections.abc import Callable
from typing import TypeVar
from weakref import WeakSet

T = TypeVar("T")

ENDING_SECONDS = 4.0
_threads: WeakSet[threading.Thread] = WeakSet()


def start_store_thread(target: Callable[[], None], name: str) -> threading.Thread:
    """Start a thread that asks the store."""
    thread = threading.Thread(target=target, name=name, daemon=True)
    _threads.add(thread)
    thread.start()
    return thread


def end_store_threads() -> None:
    """Wait for those that are asking, at the end of the process."""
    until = time.monotonic() + ENDING_SECONDS
    for thread in list(_threads):
        thread.join(max(0.0, until - time.monotonic()))


def ask_rank_store(question: Callable[[], T], seconds: float) -> T:
    """Return a store's answer, which a thread of its own waits for; raises TimeoutError where none comes in time."""
    found: list[T] = []
    errors: list[Exception] = []

    def collect_answer() -> None:
        try:
            found.append(question())
        except Exception as error:  # noqa: BLE001 -- raised again where it was asked
            errors.append(error)

    start_store_thread(collect_answer, "truestep-store").join(seconds)
    if errors:
        raise errors[0]
    if not found:
        raise TimeoutError(f"the store has not answered for {seconds:g} seconds")
    return found[0]
