# SPDX-License-Identifier: Apache-2.0
"""`truestep selfcheck`: each law once on this machine's device, for whoever has a card."""

import sys
from typing import Annotated

import typer

from truestep.cli.options import Json
from truestep.cli.statuses import EXIT_FAILED

app = typer.Typer(add_completion=False)


@app.command()
def selfcheck(
    *,
    device: Annotated[
        str, typer.Option(help="The device: cuda, cuda:1, mps, cpu; auto is the accelerator if there is one.")
    ] = "auto",
    as_json: Json = False,
) -> None:
    """Try each law once on this machine's device, beside the CPU; print a table for an issue.

    What does not apply to a device is said so, and is no pass. The exit status is 1 when a check fails.
    """
    from truestep.cli.command_output import show_result
    from truestep.selfcheck import check_device

    report = check_device(device, told=lambda name: sys.stderr.write(f"{name} ...\n"))
    show_result(report, as_json=as_json)
    raise typer.Exit(EXIT_FAILED if report.failed else 0)
