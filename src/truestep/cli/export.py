# SPDX-License-Identifier: Apache-2.0
"""`truestep export`: a model as an ONNX file that gives what torch gives."""

from pathlib import Path
from typing import Annotated

import typer

from truestep.cli.summary import BATCH, INPUT

app = typer.Typer(add_completion=False)


@app.command()
def export(
    model: Annotated[
        str, typer.Argument(metavar="FILE.py:NAME", help="A function (or class) that makes the model.")
    ],
    path: Annotated[Path, typer.Argument(help="The .onnx file to write.")],
    *,
    inputs: Annotated[list[str] | None, INPUT] = None,
    batch: Annotated[str | None, BATCH] = None,
    providers: Annotated[
        list[str] | None,
        typer.Option(
            "--provider", help="Of onnxruntime, as CUDAExecutionProvider; one that is not got is an error."
        ),
    ] = None,
    threads: Annotated[
        int | None, typer.Option("--threads", help="Of onnxruntime, within an operator.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Export a model to ONNX with a dynamic batch, and compare onnxruntime's results with torch's at two batch sizes.

    The exit status is 1 when the results differ by more than rounding, or the model can't be exported.
    """
    from truestep.cli.screen import print_json_document, show_on_screen
    from truestep.cli.statuses import EXIT_FAILED
    from truestep.cli.targets import model_and_batch
    from truestep.model.export.onnx import export_onnx

    made, example = model_and_batch(model, inputs or [], batch)
    result = export_onnx(made, example, path, providers=providers, threads=threads)
    print_json_document(result.to_dict()) if as_json else show_on_screen(result)
    raise typer.Exit(0 if result.agrees else EXIT_FAILED)
