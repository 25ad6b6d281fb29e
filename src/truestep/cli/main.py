# SPDX-License-Identifier: Apache-2.0
"""The `truestep` command.

Each command is one file beside this one and one line in COMMANDS; its file is imported only when
the command is used, so that `truestep --help` imports neither torch nor any of them.
"""

import errno
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from truestep.cli.command_output import is_stdout_reader_gone, print_on_stderr, replace_unencodable_in_stdout
from truestep.cli.completion import VARIABLE
from truestep.cli.early_signals import give_signals_back
from truestep.cli.statuses import EXIT_FAILED, EXIT_MISSING, EXIT_USAGE
from truestep.cli.usage import USAGE_ERROR, CommandGroupWithSuggestions, usage_message
from truestep.core.errors import MissingPackageError, ModelError, TruestepError

# one line for `truestep --help`, in the order shown; each command is the typer `app` of the module of its name
COMMANDS = {
    "train": "Train a recipe: one of `truestep recipes`, or a file of your own.",
    "launch": "Run a training file in several processes, on one machine or on many.",
    "recipes": "List the trainings that `truestep train NAME` runs.",
    "runs": "List runs: running, finished, stopped, interrupted or damaged; best value, size.",
    "report": "Write the page of a run, or of several side by side: differences, best values, curves.",
    "checkpoints": "List, verify, show, compare, export and prune the checkpoints of a run.",
    "mirror": "Say whether an object store is fit to keep a run.",
    "doctor": "Run a training script under watch and say what is wrong with it.",
    "read": "Read training code for silent bugs; needs no torch and runs nothing.",
    "checks": "List the checks of the doctor, or print the page of one.",
    "explain": "Say what an error means and what to do, from a log or a message.",
    "errors": "List the errors that are explained, or print the page of one.",
    "env": "Report on torch, CUDA, Python and the machine, with verdicts.",
    "selfcheck": "Try each law once on this machine's device; a table for an issue.",
    "gpus": "Show the GPUs; pick, claim, free and set them.",
    "schedule": "Plot the learning rate that a schedule gives over a training.",
    "summary": "Show a model's layers: shapes, parameters, multiply-adds, memory of training.",
    "graph": "Draw a model's modules and its autograd graph, with repeated blocks rolled up.",
    "export": "Export a model to ONNX and compare onnxruntime's results with torch's.",
    "dtypes": "Show every dtype of the installed torch: range, precision, devices, carriers.",
    "completion": "Print what makes bash, zsh or fish complete commands and options.",
}


PASSING_ON = ("doctor", "launch", "gpus")  # their words, and stdout, are another program's, too


def module_of_command(name: str) -> str:
    """Return the module that holds a command."""
    return f"truestep.cli.{name}"


# in `truestep --help`: what a command is for
PANELS: dict[str, tuple[str, ...]] = {
    "Find mistakes": ("read", "doctor", "explain", "checks", "errors"),
    "Train": ("train", "recipes", "launch"),
    "Look at runs": ("runs", "report", "checkpoints", "mirror"),
    "Look at models and schedules": ("summary", "graph", "schedule", "export", "dtypes"),
    "Look at the machine": ("env", "selfcheck", "gpus"),
    "Shell": ("completion",),
}

WHAT_NEXT = """\
Truestep finds silent mistakes in PyTorch training code, and trains with steps
that are exact.

Find mistakes in code you have
  truestep read train.py           reads it: nothing is run
  truestep doctor train.py         runs it and watches the first steps
  truestep explain train.log       says what the error in a log means

Train
  truestep train digits            a first training, on any machine
  truestep runs                    lists your runs: state and best value
  truestep report runs/a runs/b    compares two of them on one page

Look at the machine
  truestep env                     says what is wrong with torch, CUDA or Python
  truestep gpus                    shows which GPU is free

truestep --help lists all commands, truestep COMMAND --help explains one.
"""


class _OtherBrokenPipeError(Exception):
    """A pipe broke that is not stdout: a worker of a training has died, for example."""

    def __init__(self, error: BrokenPipeError) -> None:
        super().__init__(str(error))
        self.error = error


class LazyCommands(CommandGroupWithSuggestions):
    """A group that knows its commands' names and one-liners, and imports one when it is called."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = {
            name: TyperCommand(name, help=COMMANDS[name], short_help=COMMANDS[name], rich_help_panel=panel)
            for panel, names in PANELS.items()
            for name in names
        }

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Replace the placeholder by the command itself."""
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None:
            # Only the command that was called is imported, with whatever it needs.
            command = typer.main.get_command(import_module(module_of_command(name)).app)
            give_signals_back()
        return name, command, rest

    def invoke(self, ctx: Any) -> Any:
        """Run a command; typer ends quietly on any broken pipe, so one that is not stdout's gets another name here."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            if is_stdout_reader_gone():
                raise
            raise _OtherBrokenPipeError(error) from error

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command; a mistake on the command line ends with one plain message."""
        args = list(sys.argv[1:] if args is None else args)
        if args[:1] == ["help"]:  # what many type first
            args = [*args[1:], "--help"]
        if not args or args[0] not in PASSING_ON:
            _refuse_empty_arguments(args)
            replace_unencodable_in_stdout()
        try:
            status = super().main(
                args,
                prog_name,
                complete_var,
                standalone_mode=False,
                windows_expand_args=windows_expand_args,
                **extra,
            )
        except USAGE_ERROR as error:
            if not standalone_mode:
                raise
            print_on_stderr(usage_message(error))
            sys.exit(EXIT_USAGE)
        if not standalone_mode:
            return status
        sys.exit(status if isinstance(status, int) else 0)


app = typer.Typer(
    cls=LazyCommands,
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _refuse_empty_arguments(args: Sequence[str]) -> None:
    if "" in args[1:]:
        print_on_stderr(
            f"truestep {args[0]}: a word of the command is empty, as a variable gives that is not set. Name a file or folder; . "
            "is this one.\n"
        )
        sys.exit(EXIT_USAGE)


def _print_version_and_exit(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"truestep {version('truestep')}")  # noqa: T201
        raise typer.Exit


@app.callback()
def truestep(
    context: typer.Context,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version_and_exit, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Train PyTorch models with steps that are exact, and find silent bugs in training code."""
    if context.invoked_subcommand is None:
        sys.stdout.write(WHAT_NEXT)


def _exit_status_of_error(error: TruestepError) -> int:
    if isinstance(error, MissingPackageError):
        return EXIT_MISSING
    return EXIT_FAILED if isinstance(error, ModelError) else EXIT_USAGE


def main() -> None:
    """Run the command line; a user's mistake ends with one message and a status, not a traceback."""
    if VARIABLE in os.environ:  # a shell asks what could follow
        from typer.completion import get_completion_inspect_parameters

        get_completion_inspect_parameters()  # which makes typer's own shells known
    _open_standard_streams()
    try:
        _run_command()
    except TruestepError as error:
        print_on_stderr(f"truestep: {error}\n")
        sys.exit(_exit_status_of_error(error))
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        sys.stderr.write("truestep: this needs PyTorch. Install it with: pip install 'truestep[torch]'\n")
        sys.exit(EXIT_MISSING)
    except _OtherBrokenPipeError as broken:
        raise broken.error from None
    except BrokenPipeError:  # whoever read has seen enough, as `head` has
        _discard_buffered_stdout()
        sys.exit(EXIT_FAILED)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        sys.stderr.write(
            "truestep: the disk is full, and what was to be written is incomplete. Make room and try again.\n"
        )
        _discard_buffered_stdout()
        sys.exit(EXIT_FAILED)


def _run_command() -> None:
    """Run it, and write what still waits in stdout, here where a failure can be told."""
    try:
        app(prog_name="truestep")
    finally:
        sys.stdout.flush()


def _open_standard_streams() -> None:
    """Have what was started with a closed stdin, stdout or stderr (`truestep >&-`) write nowhere.

    Closed, the next file that is opened would have its number, and whatever a child prints would end in that file.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:  # Python's own word for one that is closed
            nowhere = os.open(os.devnull, os.O_RDWR)
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115 - open until the process ends


def _discard_buffered_stdout() -> None:
    """Have what still waits in stdout go nowhere: Python writes it once more as it ends, and has no place for it either."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
