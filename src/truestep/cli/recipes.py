# SPDX-License-Identifier: Apache-2.0
"""`truestep recipes`: the trainings that `truestep train` can run."""

import json
from typing import Annotated

import typer

from truestep.recipes.loading import read_recipe, recipes

app = typer.Typer(add_completion=False)


@app.command()
def list_recipes(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """List the trainings that `truestep train NAME` runs."""
    found = [read_recipe(path) for path in recipes().values()]
    if as_json:
        rows = [{"name": recipe.name, "summary": recipe.summary} for recipe in found]
        typer.echo(json.dumps({"schema_version": 1, "recipes": rows}))
        return
    width = max(len(recipe.name) for recipe in found)
    for recipe in found:
        typer.echo(f"{recipe.name:<{width}}  {recipe.summary}")
