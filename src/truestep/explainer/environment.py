# SPDX-License-Identifier: Apache-2.0
"""What the report on the environment says of one question, where that is a fault."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from truestep.machine.environment import EnvironmentVerdict


def environment_cause(name: str) -> "EnvironmentVerdict | None":
    """Return a verdict of `truestep env` that is no pass; None where it is one, or can't be judged."""
    from truestep.machine.environment import environment

    return next(
        (each for each in environment().verdicts if each.name == name and each.status in ("fail", "warn")),
        None,
    )
