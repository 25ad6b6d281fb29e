# SPDX-License-Identifier: Apache-2.0
"""`truestep errors`: the errors that are explained, and the page of one."""

from dataclasses import asdict
from itertools import groupby
from typing import Annotated, Any

import typer

from truestep.cli.command_output import print_json_document, print_wrapped_lines
from truestep.cli.options import Json
from truestep.explainer.catalogue import error_topic_folder, explained_errors, find_error
from truestep.explainer.explainer import Explainer

app = typer.Typer(add_completion=False)


@app.command(name="errors")
def show_errors(
    name: Annotated[str | None, typer.Argument(help="An error's name; all errors when left out.")] = None,
    as_json: Json = False,
) -> None:
    """List the errors that `truestep explain` knows, or print the page of one."""
    wanted = [find_error(name)] if name else list(explained_errors().values())
    wanted.sort(key=lambda each: (error_topic_folder(each), each.name()))
    if as_json:
        print_json_document({"schema_version": 1, "errors": [_error_json_entry(each) for each in wanted]})
    else:
        print_wrapped_lines(_error_page_lines(wanted[0]) if name else _error_list_lines(wanted))


def _error_json_entry(error: type[Explainer]) -> dict[str, Any]:
    page = {name: value or None for name, value in asdict(error.page()).items() if name != "cases"}
    told = {"cases": error.page().cases_to_show(), "checks": list(error.checks)}
    return {"name": error.name(), "topic": error_topic_folder(error), **page, **told}


def _error_list_lines(wanted: list[type[Explainer]]) -> list[str]:
    width = max(len(each.name()) for each in wanted)
    lines = []
    for topic, members in groupby(wanted, key=error_topic_folder):
        lines += [topic, *(f"  {each.name():<{width}}  {each.page().summary}" for each in members), ""]
    return [*lines, f"{len(wanted)} errors. `truestep errors NAME` prints a page."]


def _error_page_lines(error: type[Explainer]) -> list[str]:
    page = error.page()
    lines = [error.name(), page.summary, "", f"Means: {page.means}", ""]
    for title, code in (("Raises", page.raises), ("Recorded", page.recorded), ("Works", page.works)):
        if code:
            lines += [f"{title}:", *(f"    {line}".rstrip() for line in code.splitlines()), ""]
    checks = f" (the doctor's checks: {', '.join(error.checks)})" if error.checks else ""
    cases = [f"  {each}" for each in page.cases_to_show()]
    told = ["", "In one run it may say:", *cases] if cases else []
    return [*lines, f"Fix: {page.fix}{checks}", *told]
