# SPDX-License-Identifier: Apache-2.0
"""`truestep checks`: what the doctor knows, and the page of one check."""

import json
from enum import StrEnum
from typing import Annotated

import typer
from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from truestep.core.errors import OptionError
from truestep.doctor.catalogue import checks, find_check, topic_of
from truestep.doctor.check import Check
from truestep.doctor.page import MARK
from truestep.doctor.reporting.documents import SCHEMA_VERSION

app = typer.Typer(add_completion=False)
CHECK = typer.Argument(
    help="A code (GRAD001), the beginning of codes (GRAD) or a name; all checks when left out."
)


class How(StrEnum):
    """How a check finds its fault."""

    READ = "read"
    WATCH = "watch"
    PROBE = "probe"


@app.command(name="checks")
def show(
    check: Annotated[str | None, CHECK] = None,
    how: Annotated[How | None, typer.Option(help="Only the checks that work this way.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """List the checks of the doctor, or print the page of one with its examples."""
    wanted = _wanted(check, how)
    if as_json:
        typer.echo(
            json.dumps(
                {"schema_version": SCHEMA_VERSION, "checks": [_entry(each) for each in wanted]}, indent=2
            )
        )
    elif check and check in (wanted[0].code, wanted[0].name(), wanted[0].code.lower()):
        _show_page(wanted[0], Console(highlight=False))
    else:
        _show_table(wanted, Console(highlight=False))


def _wanted(check: str | None, how: How | None) -> list[type[Check]]:
    """Return the checks whose codes begin so, or the one of this code or name."""
    found = [each for code, each in checks().items() if check is None or code.startswith(check.upper())]
    if check is not None and not found:
        return [find_check(check)]
    found = [each for each in found if how is None or how.value in each.found_by()]
    if not found:
        raise OptionError(f"No check whose code begins with {check!r} is of the kind {how}.")
    return found


def _entry(check: type[Check]) -> dict[str, object]:
    page = check.page()
    return {
        "code": check.code,
        "name": check.name(),
        "topic": topic_of(check),
        "ways": check.found_by(),
        "summary": page.summary,
        "why": page.why,
        "bad": page.bad,
        "good": page.good,
        "fix": page.fix,
    }


def _show_table(wanted: list[type[Check]], console: Console) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("code", "how", "what"):
        table.add_column(name, no_wrap=name != "what")
    for check in wanted:
        table.add_row(check.code, ", ".join(check.found_by()), check.page().summary)
    console.print(table)
    console.print(f"\n{len(wanted)} checks. `truestep checks CODE` shows the examples of one.")


def _show_page(check: type[Check], console: Console) -> None:
    page = check.page()
    console.print(Text(f"{check.code}  {check.name()}", "bold"))
    console.print(Text(f"{page.summary}\n\nWhy: {page.why}\n"))
    for title, code in (("Bad", page.bad), ("Good", page.good)):
        console.print(Text(f"{title}:", "bold"))
        shown = code.replace(f"  {MARK}", "  # <- here").rstrip("\n")
        console.print(
            Syntax(shown, "python", background_color="default") if console.is_terminal else Text(shown),
            soft_wrap=True,
        )
        console.print()
    console.print(Text(f"Fix: {page.fix}"))
