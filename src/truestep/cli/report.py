# SPDX-License-Identifier: Apache-2.0
"""`truestep report`: the page of a run, or of several side by side."""

from pathlib import Path
from typing import Annotated

import typer

from truestep.cli.options import Json
from truestep.cli.usage import EXAMPLE
from truestep.core.text_formatting import plural

app = typer.Typer(add_completion=False)


@app.command(name="report", epilog=f"{EXAMPLE}truestep report runs/digits")
def make_report(
    directories: Annotated[
        list[str],
        typer.Argument(
            help="The folders of runs, or a folder that holds them; or the addresses of mirrors.",
            metavar="RUN",
        ),
    ],
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            help="The page to write; by default report.html in the run, or comparison.html beside the first; of an address, here."
        ),
    ] = None,
    csv: Annotated[
        Path | None, typer.Option("--csv", help="Also write every value that was logged: one row a value.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write the page of a run; of several, one page: what differs, best values, and their curves on the same axes.

    The page is one file that loads nothing. Runs that are at work can be given too: nothing of theirs is changed.
    """
    from truestep.cli.command_output import (
        print_json_document,
        print_line_on_screen,
        print_result_on_screen,
        warn_on_screen,
    )
    from truestep.report import check_report_directories, default_report_path, render_records, write_html_page
    from truestep.report.compare import compare_runs
    from truestep.report.run_locations import folders_of_runs
    from truestep.report.run_record import read_run_records

    with folders_of_runs(directories) as given:
        paths = check_report_directories(
            [run for path in check_report_directories(given) for run in _run_folders_at(path)]
        )
        records = read_run_records(paths)
        found = compare_runs(records)
        if csv is not None:
            from truestep.report.export import write_metrics_csv

            warn_on_screen(f"wrote {plural(write_metrics_csv(paths, found.runs, csv), 'value')} to {csv}")
        html = render_records(records)
    first = directories[0] if given[0] != directories[0] else paths[0]
    page = write_html_page(html, out or default_report_path(first, len(paths)))
    if as_json:
        print_json_document({**found.to_dict(), "report": str(page)})
        return
    print_result_on_screen(found)
    print_line_on_screen(f"Report: {page}")


def _run_folders_at(path: Path) -> list[Path]:
    """Return the run in a folder, or the runs under it; raise where there is none."""
    from truestep.checkpoints.foreign_formats import describe_path_without_run
    from truestep.core.errors import RunDirectoryError
    from truestep.report.listing import reportable_runs_in

    found = reportable_runs_in(path)
    if not found:
        instead = describe_path_without_run(path) or " `truestep runs` lists the runs there are."
        raise RunDirectoryError(f"{path} holds no run: there is no metrics.jsonl in it or under it.{instead}")
    return found
