# SPDX-License-Identifier: Apache-2.0
"""`truestep dtypes`: what each dtype of the installed torch holds, where it computes, what carries it."""

from typing import Annotated

import typer

app = typer.Typer(add_completion=False)


@app.command()
def dtypes(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    time_matmul: Annotated[
        bool,
        typer.Option(
            "--time", help="Also time the product of two matrices in each dtype and on each device."
        ),
    ] = False,
    size: Annotated[int, typer.Option("--size", help="Rows and columns of these matrices.")] = 512,
) -> None:
    """Show every dtype of the installed torch: bits, range, precision, devices, NumPy, safetensors, ONNX, old names.

    Everything is tried out here: a sum and a product on each device, a safetensors file in memory.
    """
    from truestep.cli.screen import print_json_document, show_on_screen
    from truestep.machine.dtypes import dtypes as read

    report = read(time_matmul=time_matmul, size=size)
    print_json_document(report.to_dict()) if as_json else show_on_screen(report)
