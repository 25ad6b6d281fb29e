# SPDX-License-Identifier: Apache-2.0
"""`truestep train NAME|FILE.py`: run a recipe; the fields of its Config are options."""

import sys
from collections.abc import Sequence

import typer

from truestep.cli.recipe_help import print_general_help, print_recipe_help
from truestep.errors import OptionError
from truestep.recipes.loading import find, parsed, read_recipe, recipes, start

EXIT_MISSING = 3
EXIT_INTERRUPTED = 130
HELP = ("--help", "-h")

app = typer.Typer(add_completion=False)


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True}, add_help_option=False
)
def train(context: typer.Context) -> None:
    """Train a recipe: one of `truestep recipes`, or a file of your own."""
    arguments = context.args
    if not arguments or arguments[0] in HELP:
        print_general_help()
        raise typer.Exit(0 if arguments else 2)
    name, rest = arguments[0], arguments[1:]
    if name.startswith("-"):
        raise OptionError(f"The recipe comes first: truestep train NAME {name} ...; {name} is an option.")
    if any(word in HELP for word in rest):
        print_recipe_help(read_recipe(find(name)), name)
        return
    _train(name, rest)


def _train(name: str, arguments: Sequence[str]) -> None:
    recipe = read_recipe(find(name))
    try:
        directory = start(parsed(recipe, arguments))
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None
    except ModuleNotFoundError as error:
        if name not in recipes() or error.name == "torch":
            raise
        sys.stderr.write(
            f"truestep: {name} needs {error.name}. Install it with: pip install 'truestep[recipes]'\n"
        )
        raise typer.Exit(EXIT_MISSING) from error
    typer.echo(f"Report: {directory / 'report.html'}")
