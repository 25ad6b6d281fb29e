# SPDX-License-Identifier: Apache-2.0
"""An automatic choice with its reason."""

from typing import NamedTuple

from truestep.core.result_display import RenderableType, Shown, result_table


class Choice(NamedTuple):
    """Something that was chosen for the user, and why."""

    name: str
    value: str
    reason: str
    weakens: bool = False
    """Whether a law can't be kept because of it; the run then says so when it starts."""


class Choices(Shown, list[Choice]):
    """Choices that show as a table in a terminal and in a notebook."""

    def __rich__(self) -> RenderableType:
        from truestep.core.rich_imports import Text

        return result_table("", ("choice", "value", "reason"), (map(Text, each[:3]) for each in self))
