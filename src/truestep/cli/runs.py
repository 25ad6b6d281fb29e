# SPDX-License-Identifier: Apache-2.0
"""`truestep runs`: the runs in a folder, and how each of them stands."""

from typing import Annotated

import typer

from truestep.cli.options import Json

app = typer.Typer(add_completion=False)


@app.command(name="runs")
def list_runs(
    folder: Annotated[
        str,
        typer.Argument(
            help="The folder that holds the runs, or the folder of one; or an address, s3://bucket/runs.",
            metavar="FOLDER",
        ),
    ] = "runs",
    *,
    best: Annotated[
        str | None,
        typer.Option("--best", help="Compare by this metric, the best run first.", metavar="METRIC"),
    ] = None,
    as_json: Json = False,
) -> None:
    """List the runs in a folder: state, best value, size, and when each was last written.

    A run is running, finished, stopped (asked to end), interrupted (killed, or by an exception) or damaged. It may be at work:
    nothing of it is touched. Of an address the runs are listed whose mirrors lie there, and who holds each.
    """
    from truestep.cli.command_output import show_result
    from truestep.report.listing import runs

    found = runs(folder, best=best)
    show_result(found, as_json=as_json)
