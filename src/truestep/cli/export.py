# SPDX-License-Identifier: Apache-2.0
"""`truestep export`: a model as an ONNX file that gives what torch gives."""

from pathlib import Path
from typing import Annotated

import typer

from truestep.cli.options import Batch, Inputs, Json, Model
from truestep.cli.usage import EXAMPLE

app = typer.Typer(add_completion=False)


@app.command(epilog=f"{EXAMPLE}truestep export train.py:make_model net.onnx --input 8,3,224,224")
def export(
    model: Model,
    path: Annotated[Path, typer.Argument(help="The .onnx file to write.")],
    *,
    inputs: Inputs = None,
    batch: Batch = None,
    providers: Annotated[
        list[str] | None,
        typer.Option(
            "--provider", help="Of onnxruntime, as CUDAExecutionProvider; one that is not got is an error."
        ),
    ] = None,
    threads: Annotated[
        int | None, typer.Option("--threads", help="Of onnxruntime, within an operator.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Export a model to ONNX with a dynamic batch, and compare onnxruntime's results with torch's at two batch sizes.

    The exit status is 1 when the results differ by more than rounding, or the model can't be exported.
    """
    from truestep.cli.command_output import show_result
    from truestep.cli.object_arguments import model_and_batch
    from truestep.cli.statuses import EXIT_FAILED
    from truestep.model.export.onnx import export_onnx

    made, example = model_and_batch(model, inputs or [], batch)
    result = export_onnx(made, example, path, providers=providers, threads=threads)
    show_result(result, as_json=as_json)
    raise typer.Exit(0 if result.agrees else EXIT_FAILED)
