# SPDX-License-Identifier: Apache-2.0
"""`truestep mirror check ADDRESS`: whether an object store is fit to keep a run."""

from typing import Annotated

import typer

from truestep.cli.options import Json
from truestep.cli.statuses import EXIT_FAILED
from truestep.cli.usage import EXAMPLE, CommandGroupWithSuggestions

app = typer.Typer(
    add_completion=False,
    help="Say whether an object store is fit to keep a run.",
    cls=CommandGroupWithSuggestions,
    epilog=f"{EXAMPLE}truestep mirror check s3://bucket/test",
)


@app.callback()
def mirror() -> None:
    """Look at object stores that `ts.Run(mirror=...)` keeps runs in."""


@app.command(epilog=f"{EXAMPLE}truestep mirror check s3://bucket/test")
def check(
    address: Annotated[
        str,
        typer.Argument(
            help="A place in the store: s3://bucket/test, gs://, az:// or file:///folder.", metavar="ADDRESS"
        ),
    ],
    *,
    as_json: Json = False,
) -> None:
    """Make, race for, damage and remove objects below an address, and say whether a run is safe there.

    Nothing else in the store is touched. Exit status 1: it is not fit.
    """
    from truestep.cli.command_output import show_result
    from truestep.mirror.store_check import check_mirror

    found = check_mirror(address)
    show_result(found, as_json=as_json)
    if not found.is_fit:
        raise typer.Exit(EXIT_FAILED)
