# SPDX-License-Identifier: Apache-2.0
"""`truestep checks`: what the doctor knows, and the page of one check."""

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from truestep.doctor.catalogue import checks, find_check, topic_of
from truestep.doctor.check import Check
from truestep.doctor.page import MARK
from truestep.doctor.reporting.documents import SCHEMA_VERSION

app = typer.Typer(add_completion=False)


@app.command(name="checks")
def show(
    check: Annotated[
        str | None, typer.Argument(help="A code (GRAD001) or a name; all checks when left out.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """List the checks of the doctor, or print the page of one."""
    wanted = [find_check(check)] if check else list(checks().values())
    if as_json:
        typer.echo(
            json.dumps(
                {"schema_version": SCHEMA_VERSION, "checks": [_entry(each) for each in wanted]}, indent=2
            )
        )
    elif check:
        _show_page(wanted[0], Console(highlight=False))
    else:
        _show_table(wanted, Console(highlight=False))


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
    console.print(f"\n{len(wanted)} checks. `truestep checks CODE` prints a page.")


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
