# SPDX-License-Identifier: Apache-2.0
"""A run that is closed before anything was computed in it: what was put into `run.state` is saved all the same."""

from collections.abc import Callable
from typing import Any, Protocol


class HoldsRunState(Protocol):
    """What is asked of a run here."""

    state: dict[str, Any]

    @property
    def world_size(self) -> int:
        """How many processes train together."""


def begin_run_for_state(run: HoldsRunState, begin: Callable[[], None]) -> None:
    """Begin a run for its state alone, if there is any: one that goes on keeps what it had, with what was put in now."""
    given = dict(run.state)
    # Of several processes one may close alone, and to begin is what all do.
    if given and run.world_size == 1:
        begin()
        run.state.update(given)
