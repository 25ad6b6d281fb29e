# SPDX-License-Identifier: Apache-2.0
"""`truestep checks`: what the doctor knows, and the page of one check."""

import textwrap
from dataclasses import asdict
from enum import StrEnum
from typing import Annotated

import typer
from rich.syntax import ANSISyntaxTheme, Syntax

from truestep.cli.command_output import command_console, print_json_document, print_result_on_screen
from truestep.cli.options import Json
from truestep.core.errors import OptionError
from truestep.core.rich_imports import Console, Style, Table, Text
from truestep.doctor.catalogue import check_topic, checks
from truestep.doctor.check import Check
from truestep.doctor.check_page_urls import check_docs_address, check_help
from truestep.doctor.chinese_mistake_lines import listed_mistakes
from truestep.doctor.reporting.finding_layout import STYLES
from truestep.doctor.reporting.json_and_sarif import SCHEMA_VERSION
from truestep.doctor.retired import RETIRED, retired_codes, retired_line
from truestep.doctor.searching import checks_with_words, no_such_check_message

app = typer.Typer(add_completion=False)
CHECK = typer.Argument(
    metavar="[CODE or words]...",
    help="A code (GRAD001), the beginning of codes (GRAD), a name, or words to search for (shuffle); all checks when left out.",
)


# readable on a dark background as on a light one: a terminal's own blue is not
_READABLE = ANSISyntaxTheme(
    {
        ("Comment",): Style(bold=True),  # "# <- here" shows the line
        ("Keyword",): Style(color="magenta"),
        ("Operator", "Word"): Style(color="magenta"),
        ("Literal", "String"): Style(color="green"),
        ("Literal", "Number"): Style(color="cyan"),
    }
)


class How(StrEnum):
    """How a check finds its mistake."""

    READ = "read"
    RUN = "run"
    BOTH = "both"


HOW = typer.Option(
    help="Only the checks that find their mistake so: in the source, while a script runs, or in both ways."
)


@app.command(name="checks")
def show_checks(
    words: Annotated[list[str] | None, CHECK] = None,
    how: Annotated[How | None, HOW] = None,
    as_json: Json = False,
) -> None:
    """List the checks of the doctor, search them, or print the page of one with its examples."""
    check = " ".join(words) if words else None
    wanted = _checks_with_code_prefix(check)
    gone = retired_codes(check) if check and not wanted else []
    if not gone:
        wanted = _matching_checks(check, wanted, how)
    if as_json:
        listed, retired = (
            [_check_json_entry(each) for each in wanted],
            {code: RETIRED[code].reason for code in gone},
        )
        print_json_document({"schema_version": SCHEMA_VERSION, "checks": listed, "retired": retired})
    elif gone:
        for code in gone:
            print_result_on_screen(Text(retired_line(code)))
    elif check and check.lower() in (wanted[0].code.lower(), wanted[0].name()):
        _show_check_page(wanted[0], command_console())
    else:
        _show_checks_table(wanted)


def _checks_with_code_prefix(check: str | None) -> list[type[Check]]:
    return [each for code, each in checks().items() if check is None or code.startswith(check.upper())]


def _checks_named(name: str) -> list[type[Check]]:
    return [each for each in checks().values() if each.name() == name.lower()]


def _matching_checks(check: str | None, found: list[type[Check]], how: How | None) -> list[type[Check]]:
    """Return those of the checks found that find their mistake so, or the one of this name, or those with these words."""
    if check is not None and not found:
        found = _checks_named(check) or checks_with_words(check)
        if not found:
            raise OptionError(no_such_check_message(check))
    chosen = [each for each in found if how is None or _how_check_finds(each) in (how, How.BOTH)]
    if not chosen:
        known = sorted({_how_check_finds(each) for each in found})
        raise OptionError(f"No check of {check!r} has --how {how}, only {', '.join(known)}.")
    return chosen


def _how_check_finds(check: type[Check]) -> How:
    found = check.found_by()
    return How(found[0]) if len(found) == 1 else How.BOTH


_FOUND = {
    How.READ: "reading the source",
    How.RUN: "running the script under watch (truestep doctor)",
    How.BOTH: "reading the source, and by running the script under watch (truestep doctor)",
}


def _severities_text(check: type[Check]) -> Text:
    return Text(", ").join(Text(each, STYLES[each]) for each in check.severities())


def _check_json_entry(check: type[Check]) -> dict[str, object]:
    return {
        "code": check.code,
        "name": check.name(),
        "topic": check_topic(check),
        "severities": check.severities(),
        "how": _how_check_finds(check),
        "is_preview": check.is_preview,
        **asdict(check.page()),
        "help": check_help(check.code),
    }


_NARROW = 120  # columns: below, four severities in a line would leave too little for what the mistake is
_SEVERITY_COLUMNS = len("bug, risk,")


def _show_checks_table(wanted: list[type[Check]]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("code", "severity", "how", "mistake"):
        is_folded = name == "severity" and command_console().width < _NARROW
        most = _SEVERITY_COLUMNS if is_folded else None
        table.add_column(name, no_wrap=name != "mistake" and not is_folded, max_width=most)
    for check in wanted:
        table.add_row(check.code, _severities_text(check), _how_check_finds(check), check.page().summary)
    print_result_on_screen(table)
    number = f"{len(wanted)} check{'s' if len(wanted) != 1 else ''}"
    print_result_on_screen(Text(f"\n{number}. `truestep checks {wanted[0].code}` shows the page of one."))


def _show_check_page(check: type[Check], screen: Console) -> None:
    page = check.page()
    print_result_on_screen(
        Text.assemble((check.code, STYLES[check.severities()[0]]), "  ", (check.name(), "bold"))
    )
    print_result_on_screen(
        Text.assemble("severity ", _severities_text(check), f", found by {_FOUND[_how_check_finds(check)]}\n")
    )
    if check.is_preview:
        print_result_on_screen(
            Text("on trial: used with --preview, until it was true in code that its author did not know\n")
        )
    print_result_on_screen(Text(f"{page.summary}\n\nWhy: {page.why}\n"))
    for title, code in page.examples():
        print_result_on_screen(Text(f"{title}:", "bold"))
        # Highlighted and printed apart: a Syntax of its own would fill each line with blanks up to the width.
        python = Syntax("", "python", theme=_READABLE, background_color="default")
        screen.print(python.highlight(textwrap.indent(code, "  ")), soft_wrap=True)
    print_result_on_screen(Text(f"Fix: {page.fix}"))
    print_result_on_screen(Text(f"\nEvidence: {page.evidence}"))
    if screen.encoding.startswith("utf"):
        for mistake in listed_mistakes(check.code):
            print_result_on_screen(Text(f"In Chinese: {mistake}"))
    if address := check_docs_address(check.code):
        print_result_on_screen(Text(f"See: {address}", f"link {address}"))
