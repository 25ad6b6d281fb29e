# SPDX-License-Identifier: Apache-2.0
"""The `truestep` command.

Each command is one file beside this one and one line in COMMANDS; its file is imported only when
the command is used, so that `truestep --help` imports neither torch nor any of them.
"""

import errno
import os
import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from truestep.errors import TruestepError, nearest

# name: (module that holds its typer `app`, one line for `truestep --help`), in the order shown
COMMANDS: dict[str, tuple[str, str]] = {
    "train": (
        "truestep.cli.train",
        "Train a recipe: one of `truestep recipes`, or a file of your own.",
    ),
    "recipes": (
        "truestep.cli.recipes",
        "List the trainings that `truestep train NAME` runs.",
    ),
    "checkpoints": (
        "truestep.cli.checkpoints",
        "List, verify, show, compare, export and prune the checkpoints of a run.",
    ),
    "doctor": (
        "truestep.cli.doctor",
        "Run a training script under watch and say what is wrong with it.",
    ),
    "read": (
        "truestep.cli.read",
        "Read training code for silent bugs; needs no torch and runs nothing.",
    ),
    "checks": (
        "truestep.cli.checks",
        "List the checks of the doctor, or print the page of one.",
    ),
    "env": (
        "truestep.cli.env",
        "Report on torch, CUDA, Python and the machine, with verdicts.",
    ),
    "gpus": (
        "truestep.cli.gpus",
        "Show the GPUs; pick, claim, free and set them.",
    ),
    "dtypes": (
        "truestep.cli.dtypes",
        "Show every dtype of the installed torch: range, precision, devices, carriers.",
    ),
}

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_MISSING = 3


class LazyCommands(TyperGroup):
    """A group that knows its commands' names and one-liners, and imports one when it is called."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = {
            name: TyperCommand(name, help=line, short_help=line) for name, (_, line) in COMMANDS.items()
        }

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Replace the placeholder by the command itself; list what exists when there is none."""
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            ctx.fail(f"There is no command {args[0]!r}. {nearest(args[0], COMMANDS)}")
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None:
            command = typer.main.get_command(import_module(COMMANDS[name][0]).app)
        return name, command, rest


app = typer.Typer(
    cls=LazyCommands, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"truestep {version('truestep')}")  # noqa: T201
        raise typer.Exit


@app.callback()
def truestep(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Train PyTorch models with steps that are exact, and find silent bugs in training code."""


def main() -> None:
    """Run the command line; a user's mistake ends with one message and a status, not a traceback."""
    try:
        app(prog_name="truestep")
    except TruestepError as error:
        sys.stderr.write(f"truestep: {error}\n")
        sys.exit(EXIT_USAGE)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        sys.stderr.write(
            "truestep: this command needs PyTorch. Install it with: pip install 'truestep[torch]'\n"
        )
        sys.exit(EXIT_MISSING)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        sys.stderr.write(
            "truestep: the disk is full, and what was to be written is incomplete. Make room and try again.\n"
        )
        os.dup2(
            os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno()
        )  # what still waits there has no place either
        sys.exit(EXIT_FAILED)
