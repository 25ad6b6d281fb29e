# SPDX-License-Identifier: Apache-2.0
"""`truestep summary`: what a model's layers hold, give and cost."""

from typing import Annotated

import typer

app = typer.Typer(add_completion=False)

INPUT = typer.Option("--input", help="Shape of an argument of the forward: 1,3,224,224, or 2,12:int64.")
BATCH = typer.Option("--batch", help="FILE.py:NAME of a function that makes the batch.")


@app.command()
def summary(
    model: Annotated[
        str, typer.Argument(metavar="FILE.py:NAME", help="A function (or class) that makes the model.")
    ],
    *,
    inputs: Annotated[list[str] | None, INPUT] = None,
    batch: Annotated[str | None, BATCH] = None,
    depth: Annotated[int | None, typer.Option("--depth", help="How deep the table goes.")] = None,
    optimizer: Annotated[
        str,
        typer.Option("--optimizer", help="For the memory of training: sgd, sgd-momentum, adamw, or none."),
    ] = "adamw",
    precision: Annotated[
        str, typer.Option("--precision", help="For the memory of training: float32, bf16-mixed, fp16-mixed.")
    ] = "float32",
    time: Annotated[bool, typer.Option("--time", help="Also time each layer.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Show a model's layers: shapes, parameters, multiply-adds, and the memory that training takes.

    A multiply-add is one product and its addition in a matrix product or a convolution; biases and activations count nothing.
    """
    from truestep.cli.screen import print_json_document, show_on_screen
    from truestep.cli.targets import model_and_batch
    from truestep.model.summaries.summary import summary as summarise

    made, example = model_and_batch(model, inputs or [], batch)
    chosen = None if optimizer == "none" else optimizer
    found = summarise(made, example, depth=depth, optimizer=chosen, precision=precision, time=time)
    print_json_document(found.to_dict()) if as_json else show_on_screen(found)
