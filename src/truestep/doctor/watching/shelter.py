# SPDX-License-Identifier: Apache-2.0
"""Keeps what breaks in a watch away from the user's training, and its own calls apart from the user's."""

import functools
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Concatenate, ParamSpec

if TYPE_CHECKING:
    from truestep.doctor.watch import Watch

P = ParamSpec("P")


class Depth(threading.local):
    """How deep a thread is within wrapped calls: what those call themselves is not the user's."""

    inside = 0


def sheltered(method: Callable[Concatenate["Watch", P], None]) -> Callable[Concatenate["Watch", P], None]:
    """Let nothing that breaks in the watch reach the user's training; the watch ends and says why."""

    @functools.wraps(method)
    def safe(watch: "Watch", /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            method(watch, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - whatever it is, the user's training goes on
            watch.give_up(error)

    return safe
