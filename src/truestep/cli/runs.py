# SPDX-License-Identifier: Apache-2.0
"""`truestep runs`: the runs in a folder, and how each of them stands."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False)


@app.command(name="runs")
def list_runs(
    folder: Annotated[
        Path, typer.Argument(help="The folder that holds the runs, or the folder of one.", metavar="FOLDER")
    ] = Path("runs"),
    *,
    best: Annotated[
        str | None,
        typer.Option("--best", help="Compare by this metric, the best run first.", metavar="METRIC"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """List the runs in a folder: state, best value, size, and when each was last written.

    A run is running, finished, stopped (asked to end), interrupted (killed, or by an exception) or damaged. It may be at work:
    nothing of it is touched.
    """
    from truestep.cli.screen import print_json_document, show_on_screen
    from truestep.report.listing import runs

    found = runs(folder, best=best)
    print_json_document(found.to_dict()) if as_json else show_on_screen(found)
