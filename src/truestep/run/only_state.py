# SPDX-License-Identifier: Apache-2.0
"""A run that is closed before anything was computed in it: what was put into `run.state` is saved all the same."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from truestep.run.run import Run


def begin_for_state(run: "Run") -> None:
    """Begin a run for its state alone, if there is any: one that goes on keeps what it had, with what was put in now."""
    given = dict(run.state)
    # Of several processes one may close alone, and to begin is what all do.
    if given and run.world_size == 1:
        run.session.starting()
        run.state.update(given)
