# SPDX-License-Identifier: Apache-2.0
"""A script that is tried out for some steps and stopped then: what ends with it leaves nothing to go on from."""

from collections.abc import Callable

_asking: list[Callable[["TrialOver"], None]] = []


class TrialOver(BaseException):
    """Ends a script that was to be tried out; no `except Exception` catches it."""


def register_trial_end_callback(tell: Callable[[TrialOver], None]) -> None:
    """Have a function called when a trial is over; it is called once."""
    _asking.append(tell)


def unregister_trial_end_callback(tell: Callable[[TrialOver], None]) -> None:
    """Take that back, if it was not called yet."""
    if tell in _asking:
        _asking.remove(tell)


def call_trial_end_callbacks(over: TrialOver) -> None:
    """Tell all who asked, the last one first."""
    while _asking:
        _asking.pop()(over)
