# SPDX-License-Identifier: Apache-2.0
"""`truestep summary`: what a model's layers hold, give and cost."""

from typing import Annotated

import typer

from truestep.cli.options import Batch, Inputs, Json, Model
from truestep.cli.usage import EXAMPLE

app = typer.Typer(add_completion=False)


@app.command(epilog=f"{EXAMPLE}truestep summary train.py:make_model --input 8,3,224,224")
def summary(
    model: Model,
    *,
    inputs: Inputs = None,
    batch: Batch = None,
    depth: Annotated[int | None, typer.Option("--depth", help="How deep the table goes.")] = None,
    optimizer: Annotated[
        str,
        typer.Option("--optimizer", help="For the memory of training: sgd, sgd-momentum, adamw, or none."),
    ] = "adamw",
    precision: Annotated[
        str, typer.Option("--precision", help="For the memory of training: float32, bf16-mixed, fp16-mixed.")
    ] = "float32",
    micro_batch: Annotated[
        int | None,
        typer.Option(
            "--micro-batch", help="For the memory of training: how many rows are computed at a time."
        ),
    ] = None,
    time: Annotated[bool, typer.Option("--time", help="Also time each layer.")] = False,
    as_json: Json = False,
) -> None:
    """Show a model's layers: shapes, parameters, multiply-adds, and the memory that training takes.

    A multiply-add is one product and its addition in a matrix product or a convolution; biases and activations count nothing.
    """
    from truestep.cli.command_output import show_result
    from truestep.cli.object_arguments import model_and_batch
    from truestep.model.summaries.summary import summary as summarise

    made, example = model_and_batch(model, inputs or [], batch)
    chosen = None if optimizer == "none" else optimizer
    found = summarise(
        made,
        example,
        depth=depth,
        optimizer=chosen,
        precision=precision,
        micro_batch=micro_batch,
        time=time,
    )
    show_result(found, as_json=as_json)
