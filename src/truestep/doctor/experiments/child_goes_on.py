# SPDX-License-Identifier: Apache-2.0
"""How a child leaves what runs in this process for its parent, and goes on with the script."""

from typing import Any, Protocol

from truestep.doctor.experiments.going_on import end_child_with_script


class ChildGoesOn(BaseException):
    """In a child that was just forked: its batch is to be handed over."""

    def __init__(self, batch: Any) -> None:
        super().__init__()
        self.batch = batch


class BeginningChild(Protocol):
    """What begins in a child."""

    def begin(self) -> Any:
        """Return the batch that is handed over."""


def begun_child(child: BeginningChild) -> Any:
    """Return, in a child, the batch that it goes on with."""
    try:
        return child.begin()
    except Exception as error:  # noqa: BLE001 - this process must not go on as its parent would
        end_child_with_script(error)
