# SPDX-License-Identifier: Apache-2.0
"""Asking a store that may never answer: torch waits without a limit for one whose process is stopped."""

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def ask_rank_store(question: Callable[[], T], seconds: float) -> T:
    """Return the answer, which a thread of its own waits for; raises TimeoutError where none comes in time."""
    found: list[T] = []
    errors: list[Exception] = []

    def wait() -> None:
        try:
            found.append(question())
        except Exception as error:  # noqa: BLE001 -- raised again where it was asked
            errors.append(error)

    # a daemon: where no answer ever comes it must not keep the process from ending
    thread = threading.Thread(target=wait, name="truestep-store", daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not found:
        raise TimeoutError(f"the store has not answered for {seconds:g} seconds")
    return found[0]
