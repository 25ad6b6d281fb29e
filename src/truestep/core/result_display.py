# SPDX-License-Identifier: Apache-2.0
"""What every result can do: become JSON, a screen of text, a cell of a notebook."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

if TYPE_CHECKING:
    from rich import console  # at run time it is imported when something is shown

RenderableType: TypeAlias = "console.RenderableType"

NOTEBOOK_COLUMNS = 110


class Shown:
    """What `rich` draws in a terminal is a cell in a notebook too."""

    def _repr_html_(self) -> str:
        return result_html(self)


class Result(Shown, ABC):
    """A frozen data class that can be shown and saved; a printed one is plain text."""

    schema_version: ClassVar[int] = 1

    @abstractmethod
    def __rich__(self) -> RenderableType:
        """Return what `rich` draws in a terminal."""

    def to_dict(self) -> dict[str, Any]:
        """Return the result as dicts, lists and JSON values, `schema_version` first."""
        return {"schema_version": self.schema_version, **result_to_plain(self)}

    def __str__(self) -> str:
        from truestep.core.rich_imports import Console

        screen = StringIO()
        # in a notebook rich would show it there and then
        plain: dict[str, Any] = {"color_system": None, "emoji": False, "force_jupyter": False}
        Console(file=screen, width=NOTEBOOK_COLUMNS, **plain).print(self)
        return "\n".join(line.rstrip() for line in screen.getvalue().splitlines())


def print_results(shown: Iterable[RenderableType], screen: "console.Console") -> None:
    """Print what is shown; to a file without the blanks that fill up each line, and never cut."""
    if screen.is_terminal or screen.is_jupyter:
        for each in shown:
            screen.print(each, crop=False)
        return
    with screen.capture() as captured:
        for each in shown:
            screen.print(each, crop=False)
    screen.file.write("\n".join(line.rstrip() for line in captured.get().split("\n")))


def result_table(
    title: str, columns: Sequence[str], rows: Iterable[Iterable[RenderableType]]
) -> RenderableType:
    """Return a table with a title and a heading for each column; a row may be short."""
    from truestep.core.rich_imports import Table

    table = Table(*columns, title=title or None, title_justify="left")
    for row in rows:
        table.add_row(*row)
    return table


def result_html(shown: object) -> str:
    """Return what rich would draw as a cell of a notebook."""
    from truestep.core.rich_imports import Console

    console = Console(record=True, file=StringIO(), width=NOTEBOOK_COLUMNS, emoji=False, force_jupyter=False)
    console.print(shown)
    style = "line-height:1.2;font-family:ui-monospace,Menlo,Consolas,monospace"
    return console.export_html(inline_styles=True, code_format=f'<pre style="{style}">{{code}}</pre>')


def facts_table(title: str, facts: Iterable[tuple[str, str]]) -> RenderableType:
    """Return a title and a line for each fact, with texts as they are: a name in brackets is no style."""
    from truestep.core.rich_imports import Group, Table, Text

    table = Table.grid(padding=(0, 2))
    for name, fact in facts:
        table.add_row(Text(f"  {name}", "dim"), Text(fact))
    return Group(Text(title, "bold"), table)


def result_to_plain(value: Any) -> Any:
    """Return `value` with data classes as dicts of their shown fields, sequences as lists and keys as strings."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        shown = [each.name for each in fields if each.repr and not each.name.startswith("_")]
        return {name: result_to_plain(getattr(value, name)) for name in shown}
    if isinstance(value, Mapping):
        return {str(key): result_to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [result_to_plain(item) for item in value]
    return value
