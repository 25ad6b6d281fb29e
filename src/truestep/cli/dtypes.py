# SPDX-License-Identifier: Apache-2.0
"""`truestep dtypes`: what each dtype of the installed torch holds, where it computes, what carries it."""

from typing import Annotated

import typer

from truestep.cli.options import Json

app = typer.Typer(add_completion=False)


@app.command()
def dtypes(
    *,
    as_json: Json = False,
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
    from truestep.cli.command_output import show_result
    from truestep.machine.dtypes import dtypes as read

    report = read(time_matmul=time_matmul, size=size)
    show_result(report, as_json=as_json)
