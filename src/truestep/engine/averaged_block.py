# SPDX-License-Identifier: Apache-2.0
"""The block in which a learner's weights are their moving average."""

from collections.abc import Callable
from typing import Any, NoReturn

from torch import nn

from truestep.core.errors import OptionError
from truestep.core.missing_attribute_hints import HelpfulAttributes
from truestep.core.user_frames import warn_user
from truestep.engine.parts import LearnerParts

MOST_INTERRUPTIONS = 10
_WRITE = "Write with net.averaged(): and call net(inputs) within the block."


class AveragedBlock(HelpfulAttributes):
    """What `net.averaged()` returns; the average stands in for the weights from its entry to its end."""

    _called, _variable = "The block of net.averaged()", "averaged"

    def __init__(self, parts: LearnerParts) -> None:
        self._parts = parts
        self._was_entered = self._is_outer = self._was_written = False

    def __enter__(self) -> nn.Module:
        parts, self._was_entered = self._parts, True
        assert parts.average is not None
        if not parts.shows_average:  # else a block around this one has put it there
            self._is_outer = True
            try:
                parts.average.show()
                parts.shows_average = True
            except BaseException:
                _call_until_complete(self._leave_block)
                raise
        return parts.module

    def __exit__(self, *_: object) -> None:
        if self._is_outer:
            try:
                _call_until_complete(self._leave_block)
            except BaseException:
                _call_until_complete(self._leave_block)  # the interruption came before its first line
                raise
            if self._was_written:
                warn_user(_WRITTEN.format(name=self._parts.name))

    def _leave_block(self) -> None:
        parts = self._parts
        assert parts.average is not None
        self._was_written = self._was_written or parts.average.was_written
        parts.average.hide()
        parts.shows_average = False

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        """Say what to write."""
        self._was_entered = True  # and what is said is said
        raise OptionError(
            f"net.averaged() makes a block, in which the learner has its average, and no model. {_WRITE}"
        )

    def __del__(self) -> None:
        if not self.__dict__.get("_was_entered", True):
            said = "net.averaged() was called without a with block, so the weights stayed as they are."
            warn_user(f"{said} {_WRITE}")


def _call_until_complete(function: Callable[[], None]) -> None:
    """Call what can be called again until it has run through; what interrupted it is raised then."""
    interrupted: BaseException | None = None
    for _ in range(MOST_INTERRUPTIONS):
        try:
            function()
            break
        except BaseException as error:  # noqa: BLE001 -- raised below
            interrupted = interrupted or error
    if interrupted is not None:
        raise interrupted


_WRITTEN = (
    "Weights of {name!r} were written to inside averaged(), where they are its moving average: so the average has become what was "
    "written, and the weights are what they were. Change weights outside of the block; for a changed average take a copy, "
    "copy.deepcopy(net.module)."
)
