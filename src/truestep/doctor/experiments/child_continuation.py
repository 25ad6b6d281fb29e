# SPDX-License-Identifier: Apache-2.0
"""How a child leaves what runs in this process for its parent, and goes on with the script."""

from collections.abc import Callable
from typing import Any, Protocol

from truestep.doctor.experiments.budget import ExperimentBudget
from truestep.doctor.experiments.in_process_child import end_child_with_script, unseen
from truestep.doctor.experiments.outcome import ChildOutcome
from truestep.doctor.forks.fork import ContinuingChild, ForkOutcome, continue_in_sealed_child
from truestep.doctor.runtime.wrapping import scan_later_modules


class ChildGoesOn(BaseException):
    """In a child that was just forked: its batch is to be handed over."""

    def __init__(self, batch: Any) -> None:
        super().__init__()
        self.batch = batch


class BeginningChild(Protocol):
    """What begins in a child."""

    def begin(self) -> Any:
        """Return the batch that is handed over."""


def outcome_of_child(
    budget: ExperimentBudget, num_bytes: int, made: Callable[[ContinuingChild], BeginningChild]
) -> ChildOutcome:
    """Fork a child, which goes on with the batch of what is `made` in it; return to its parent what it saw.

    Raises:
        ChildGoesOn: this is the child.
        ExperimentNotTriedError: there is no time left.
    """
    seconds = budget.seconds_left()
    with budget.child():
        _load_what_children_need()
        told = continue_in_sealed_child(seconds=seconds, num_bytes=num_bytes)
        if isinstance(told, ContinuingChild):
            raise ChildGoesOn(_first_batch_in_child(made, told))
    return ChildOutcome(failure=told.failure) if isinstance(told, ForkOutcome) else ChildOutcome.read(told)


def _load_what_children_need() -> None:
    """Import and look up here, once, what each child would do anew: half of its time and of the memory that it copies."""
    from truestep.doctor.forks.native_writers import find_modules_to_patch  # for Linux alone

    find_modules_to_patch()
    scan_later_modules()
    with unseen():  # torch imports what it looks for there
        pass


def _first_batch_in_child(
    made: Callable[[ContinuingChild], BeginningChild], going_on: ContinuingChild
) -> Any:
    """Return, in a child, the batch that it goes on with."""
    try:
        return made(going_on).begin()
    except Exception as error:  # noqa: BLE001 - this process must not go on as its parent would
        end_child_with_script(error)
