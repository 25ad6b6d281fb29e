# SPDX-License-Identifier: Apache-2.0
"""`truestep train NAME|FILE.py`: run a recipe; the fields of its Config are options."""

import shlex
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from truestep.cli.command_output import print_line_on_screen, print_wrapped_lines
from truestep.cli.statuses import EXIT_INTERRUPTED, EXIT_MISSING
from truestep.core.errors import OptionError
from truestep.explainer.block import explain_errors
from truestep.recipes.loading.find import find_recipe, read_recipe_docstring, recipes

if TYPE_CHECKING:
    from truestep.recipes.loading.parse import ParsedRecipe

HELP = ("--help", "-h")

app = typer.Typer(add_completion=False)


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True}, add_help_option=False
)
def train(context: typer.Context) -> None:
    """Train a recipe: one of `truestep recipes`, or a file of your own."""
    arguments = context.args
    if not arguments or arguments[0] in HELP:
        _print_general_help()
        raise typer.Exit(0 if arguments else 2)
    name, rest = arguments[0], arguments[1:]
    if name.startswith("-"):
        raise OptionError(_option_before_recipe_message(arguments))
    _train_recipe(name, rest)


def _option_before_recipe_message(arguments: list[str]) -> str:
    """Return what to write where an option stands in the place of the recipe."""
    names = [*recipes()]
    given = next((each for each in arguments if each in names or each.endswith(".py")), None)
    rest = [each for each in arguments if each != given]
    return (
        f"The recipe comes first: each has options of its own, and {arguments[0]} stands before any. Write truestep train "
        f"{' '.join([given or 'digits', *rest])}. There are: {', '.join(sorted(names))}."
    )


def _print_general_help() -> None:
    """Print how recipes are trained, and which there are."""
    lines = [
        f"  {name:<10}  {read_recipe_docstring(path).partition(chr(10))[0]}"
        for name, path in recipes().items()
    ]
    told = (
        "\nUsage: truestep train NAME|FILE.py [OPTIONS]\n\n"
        "Train a recipe: one of those below, or a file of yours that has a Config data class "
        "and a function train(run, config). The fields of Config are options.\n\n"
        "Recipes:\n" + "\n".join(lines) + "\n\n"
        "Every recipe takes --out, --resume, --precision, --device, --seed, --save-every and --mirror.\n"
        "--processes 4 trains in four processes of this machine.\n"
        "--json prints at the end what truestep runs --json says of the run.\n"
        "truestep train NAME --help shows all options of a recipe."
    )
    print_wrapped_lines(told.split("\n"))


def split_processes_option(arguments: Sequence[str]) -> tuple[int | None, list[str]]:
    """Return what `--processes` says, None where it is not there, and the other words."""
    words = list(arguments)
    for place, word in enumerate(words):
        option, equals, value = word.partition("=")
        if option == "--processes":
            end = place + (1 if equals else 2)
            value = value if equals else "".join(words[place + 1 : end])
            if not value.isdigit() or not int(value):
                raise OptionError(f"--processes {value}: give how many, --processes 4.")
            return int(value), words[:place] + words[end:]
    return None, words


def _train_in_processes(
    processes: int, name: str, words: Sequence[str], prepared: "ParsedRecipe", *, as_json: bool
) -> int:
    """Train in processes of this machine, all in one folder; return the exit status."""
    from truestep.recipes.loading.start import make_timestamped_directory
    from truestep.run.launching.agent import LaunchOptions
    from truestep.run.launching.spawn import launch_python

    folder = prepared.options.out or make_timestamped_directory(Path("runs") / prepared.name)
    launch = LaunchOptions(processes=processes, logs=Path("logs"))  # where `truestep launch` has them
    out = [] if prepared.options.out else ["--out", str(folder)]
    status = launch_python(launch, ["-m", "truestep", "train", name, *words, *out])
    if as_json:
        _print_run_json(folder)
    return status


def _missing_package_exit(name: str, package: str | None) -> typer.Exit:
    sys.stderr.write(f"truestep: {name} needs {package}. Install it with: pip install 'truestep[recipes]'\n")
    return typer.Exit(EXIT_MISSING)


def _print_run_json(folder: Path) -> None:
    from truestep.cli.command_output import print_json_document
    from truestep.report.listing import runs

    print_json_document(runs(folder).to_dict())


def _train_recipe(name: str, arguments: Sequence[str]) -> None:
    words: list[str] = []
    path = find_recipe(name)
    read_recipe_docstring(path)  # refuses what is no recipe before torch is imported
    try:
        from truestep.recipes.loading.parse import parse_recipe
        from truestep.recipes.loading.start import start_recipe

        as_json = "--json" in arguments
        processes, words = split_processes_option([word for word in arguments if word != "--json"])
        prepared = parse_recipe(path, words, name=name)
        if processes is not None:
            raise typer.Exit(_train_in_processes(processes, name, words, prepared, as_json=as_json))
        # a recipe's own words leave stdout to the document
        with explain_errors(), redirect_stdout(sys.stderr if as_json else sys.stdout):
            directory = start_recipe(prepared)
    except OptionError as error:
        if not words:
            raise
        raise OptionError(f"{error} This training was given: {shlex.join(words)}.") from error
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None
    except ModuleNotFoundError as error:
        if name not in recipes() or error.name == "torch":
            raise
        raise _missing_package_exit(name, error.name) from error
    if as_json:
        _print_run_json(directory)
    else:
        print_line_on_screen(f"Report: {directory / 'report.html'}")
