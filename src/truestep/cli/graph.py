# SPDX-License-Identifier: Apache-2.0
"""`truestep graph`: a model's modules and its autograd graph, folded."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from truestep.cli.options import Batch, Inputs, Json, Model
from truestep.cli.usage import EXAMPLE

app = typer.Typer(add_completion=False)


@app.command(epilog=f"{EXAMPLE}truestep graph train.py:make_model --input 8,3,224,224")
def graph(
    model: Model,
    *,
    inputs: Inputs = None,
    batch: Batch = None,
    depth: Annotated[
        int | None,
        typer.Option("--depth", help="How deep the graph shown goes; by default as deep as 60 boxes show."),
    ] = None,
    kind: Annotated[
        Literal["modules", "autograd"], typer.Option("--kind", help="Which graph is shown.")
    ] = "modules",
    saved: Annotated[
        bool, typer.Option("--saved", help="In the autograd graph, show the tensors saved for the backward.")
    ] = False,
    attributes: Annotated[
        bool, typer.Option("--attributes", help="Show what else is saved: sizes, strides, factors.")
    ] = False,
    out: Annotated[
        list[Path] | None,
        typer.Option("--out", help="Also write a file: .html with every depth, .svg, .mmd, .dot or .json."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show how a model's modules and operations follow one another, with repeated blocks rolled up; draw them in a page.

    Drawings (.html, .svg) need the extra: pip install 'truestep\\[graph]'.
    """
    from truestep.cli.command_output import print_json_document, print_result_on_screen, warn_on_screen
    from truestep.cli.object_arguments import model_and_batch
    from truestep.model.graph.graph import graph as trace

    made, example = model_and_batch(model, inputs or [], batch)
    found = trace(made, example, saved=saved, attributes=attributes)
    shown = found.shown(depth, kind)
    for path in out or []:
        warn_on_screen(f"wrote {found.save(path, depth, kind)}")
    print_json_document(found.to_dict()) if as_json else print_result_on_screen(shown)
