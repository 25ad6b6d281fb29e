# SPDX-License-Identifier: Apache-2.0
"""The block in which a learner's weights are their moving average."""

from typing import Any, NoReturn

from torch import nn

from truestep.core.errors import OptionError
from truestep.core.frames import warn_user
from truestep.core.held import HelpfulAttributes
from truestep.engine.parts import LearnerParts

_WRITE = "Write with net.averaged(): and call net(inputs) within the block."


class AveragedBlock(HelpfulAttributes):
    """What `net.averaged()` returns; the average stands in for the weights from its entry to its end."""

    _called, _variable = "The block of net.averaged()", "averaged"

    def __init__(self, parts: LearnerParts) -> None:
        self._parts = parts
        self._was_entered = False

    def __enter__(self) -> nn.Module:
        assert self._parts.average is not None
        self._was_entered = True
        self._in_place = self._parts.average.in_place()
        self._in_place.__enter__()
        self._parts.shows_average = True
        return self._parts.module

    def __exit__(self, *raised: object) -> None:
        self._parts.shows_average = False
        self._in_place.__exit__(*raised)  # type: ignore[arg-type]

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
