# SPDX-License-Identifier: Apache-2.0
"""Random numbers that a loss draws for itself while its batch is computed in parts: the update is another for each split.

The doctor follows torch's operations in a run's first updates anyway, in the thread that trains, and says which they are. Dropout
is one operation to it, whatever that draws, and so is a layer of torch's.
"""

import sys
from pathlib import Path
from traceback import walk_stack
from typing import Any

from truestep.core.guidance import guidance, guidance_by_name
from truestep.core.random_streams import host_rng_states
from truestep.core.user_frames import is_library_file
from truestep.run.state import RunState

_PLACE = "drawn in a part"
_UPDATES_OF_HOST = 3  # in which Python's and NumPy's streams are looked at behind each operation: 15 µs
_THROUGH = (
    "truestep.doctor",
    "truestep.run",
    "torch.distributions",
    "torch.utils._device",
    "torch.overrides",
)


class UnseededDrawWatcher:
    """Says it once, with the line; nothing of numbers from a generator of the user's, and of what a library draws."""

    def __init__(self, run: RunState) -> None:
        self._draws, self._screen = run.context.draws, run.screen
        self._updates = 0
        self._host: tuple[Any, ...] | None = None
        """Python's and NumPy's streams as the operation before was computed, in this update."""

    def update_done(self) -> None:
        """What is drawn between two updates is the loop's."""
        self._updates, self._host = self._updates + 1, None

    def on_operation(self, operation: str, options: dict[str, Any]) -> None:
        """An operation was computed."""
        if self._updates < _UPDATES_OF_HOST:
            self._look_at_host_streams()
        if operation not in guidance_by_name(_PLACE) or options.get("generator") is not None:
            return
        size = self._draws.num_examples_of_part
        if size is not None and (line := _user_line_that_draws()) is not None:
            self._screen.say_once(
                f"{line}: the loss draws random numbers for itself ({operation}), and its batch is computed in parts, this one of "
                f"{size}: the update is another for each split. Write {guidance(_PLACE, operation)}.",
                key=_PLACE,
            )

    def _look_at_host_streams(self) -> None:
        """No operation of torch's tells of a draw from these: between two of them the stream has moved."""
        if (size := self._draws.num_examples_of_part) is None:
            return
        of_python, of_numpy = host_rng_states()
        before, self._host = self._host, (of_python, of_numpy[1].tobytes(), of_numpy[2])
        if before is None or before == self._host:
            return
        if (line := _user_line_that_draws()) is None:
            return
        name = "random" if before[0] != of_python else "numpy.random"
        self._screen.say_once(
            f"{line}: above this line the loss draws from {name} for itself, and its batch is computed in parts, this one of "
            f"{size}: the update is another for each split. Write {guidance(_PLACE, 'host_streams')}.",
            key=_PLACE,
        )


def _user_line_that_draws() -> str | None:
    """Return the line of the user's own that draws; None where a library does."""
    for frame, line in walk_stack(sys._getframe(1)):
        if not frame.f_globals.get("__name__", "").startswith(_THROUGH):
            path = frame.f_code.co_filename
            return None if is_library_file(path) else f"{Path(path).name}:{line}"
    return None
