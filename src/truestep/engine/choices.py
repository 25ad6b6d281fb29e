# SPDX-License-Identifier: Apache-2.0
"""An automatic choice with its reason."""

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rich.console import RenderableType


class Choice(NamedTuple):
    """Something that was chosen for the user, and why."""

    name: str
    value: str
    reason: str
    weakens: bool = False
    """Whether a law can't be kept because of it; the run then says so when it starts."""


class Choices(list[Choice]):
    """Choices that show as a table in a terminal and in a notebook."""

    def __rich__(self) -> "RenderableType":
        from rich.text import Text

        from truestep.core.results import table_of

        return table_of("", ("choice", "value", "reason"), (map(Text, each[:3]) for each in self))

    def _repr_html_(self) -> str:
        from truestep.core.results import html_of

        return html_of(self.__rich__())
