# SPDX-License-Identifier: Apache-2.0
"""`truestep recipes`: the trainings that `truestep train` can run."""

import typer

from truestep.cli.command_output import print_json_document, print_wrapped_lines
from truestep.cli.options import Json
from truestep.recipes.loading.find import read_recipe_docstring, recipes

app = typer.Typer(add_completion=False)


@app.command()
def list_recipes(as_json: Json = False) -> None:
    """List the trainings that `truestep train NAME` runs."""
    found = {name: read_recipe_docstring(path).partition("\n")[0] for name, path in recipes().items()}
    if as_json:
        rows = [{"name": name, "summary": summary} for name, summary in found.items()]
        print_json_document({"schema_version": 1, "recipes": rows})
        return
    width = max(map(len, found))
    print_wrapped_lines(f"{name:<{width}}  {summary}" for name, summary in found.items())
