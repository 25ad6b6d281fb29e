# SPDX-License-Identifier: Apache-2.0
"""What the report on the environment says of one question, where something is wrong."""


def environment_verdict(name: str) -> str | None:
    """Return what a verdict of `truestep env` says that is no pass; None where it is one, or can't be judged."""
    from truestep.machine.environment import environment

    verdicts = (each for each in environment().verdicts if each.name == name)
    return next((each.says for each in verdicts if each.status in ("fail", "warn")), None)
