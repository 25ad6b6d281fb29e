# SPDX-License-Identifier: Apache-2.0
"""Mistyped commands and options: one plain message with the nearest names, as wide as it needs to be."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import typer
from typer.core import TyperGroup

from truestep.core.errors import did_you_mean_path, names_hint
from truestep.core.guidance import option_by_other_name

# typer has its own copy of click or the installed one, by its version; this class is in both
USAGE_ERROR = cast(type[Exception], typer.BadParameter.__mro__[1])

EXAMPLE = "For example: "  # begins the epilog of a command whose usage has several forms
_QUOTE = "'"

_REMOVING = ("delete", "rm", "remove", "clean")

# commands as other tools have them, and options of one command that are another's
_COMMANDS = {
    **dict.fromkeys(("lint", "scan", "analyze"), "Write: truestep read train.py"),
    "fix": "Write: truestep read --fix train.py",
    **dict.fromkeys(("run", "debug", "profile", "fit", "watch", "start"), "Write: truestep doctor train.py"),
    **dict.fromkeys(("compare", "diff", "vs"), "Write: truestep report runs/a runs/b"),
    **dict.fromkeys(
        ("test", "validate", "evaluate", "predict"), "A script of yours does it: net.evaluate(values, data)"
    ),
    **dict.fromkeys(
        ("resume", "continue"), "A run goes on by itself: start its script again, python train.py"
    ),
    **dict.fromkeys(("list", "ls"), "Write: truestep runs"),
    **dict.fromkeys(
        _REMOVING,
        "Checkpoints are removed by: truestep checkpoints prune runs/digits --last 2",
    ),
    "tensorboard": "A run writes for it while it trains: ts.Run(directory, trackers=[ts.TensorBoardTracker()]) in the script",
}
_IN_PROCESSES = (
    "Each process is watched by a doctor of its own: torchrun --nproc-per-node 2 -m truestep doctor train.py"
)
_BY_SEVERITY = (
    "All severities are printed, and --fail-on bug makes only a bug end with exit status 1. By its code a check is left out: "
    "--ignore SAVE003"
)
_CHOOSING = ("--checkpoint", "--which", "--step", "--name", "--best", "--newest")
_OPTIONS = {
    ("doctor", "--fix"): "Changes are made where code is read: truestep read --fix train.py",
    ("doctor", "--diff"): "Changes are shown where code is read: truestep read --diff train.py",
    **dict.fromkeys((("env", "--gpu"), ("env", "--gpus")), "Write: truestep gpus"),
    **{("doctor", each): _IN_PROCESSES for each in ("--processes", "--nproc-per-node", "--nproc_per_node")},
    **{
        ("show", each): "A checkpoint stands behind its run: truestep checkpoints show runs/digits 400"
        for each in _CHOOSING
    },
    **{
        (command, each): _BY_SEVERITY
        for command in ("read", "doctor")
        for each in ("--severity", "--min-severity", "--level", "--minimum-severity")
    },
    ("read", "--steps"): "Reading runs nothing: truestep doctor --steps 50 train.py",
}


class CommandGroupWithSuggestions(TyperGroup):
    """A group of commands that names the nearest ones to a mistyped one."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command, or say which there are."""
        unknown = args and not args[0].startswith("-") and args[0] not in self.commands
        if unknown and "list" in self.commands and Path(args[0]).is_dir():
            args = ["list", *args]  # a folder alone: what is in it
        elif unknown and not ctx.resilient_parsing:
            ctx.fail(self._unknown_command_message(args[0], ctx, args[1:]))
        return super().resolve_command(ctx, args)

    def _unknown_command_message(self, word: str, context: Any, others: Sequence[str] = ()) -> str:
        if word in _COMMANDS and (context.parent is None or word in _REMOVING):
            return f"There is no command {word!r}. {_COMMANDS[word]}."
        if context.parent is None and word.endswith((".py", ".ipynb")):
            return (
                f"{word!r} is a script, and a command stands before it. To run it and look for mistakes write: truestep doctor "
                f"{word}; to read it alone: truestep read {word}. It trains by python {word}."
            )
        scripts = (
            [each for each in others if each.endswith((".py", ".ipynb"))] if context.parent is None else []
        )
        if scripts:
            return f"There is no command {word!r}. To look for mistakes in a script write: truestep read {scripts[0]}"
        if "list" in self.commands and Path(word).is_file():
            return f"{word!r} is a file, no folder of a run. Write: truestep {context.info_name} runs/digits"
        if "list" in self.commands and len(Path(word).parts) > 1:
            return f"There is no folder {word!r}.{did_you_mean_path(Path(word))} Write: truestep {context.info_name} runs/digits"
        or_folder = " or folder" if "list" in self.commands else ""
        return f"There is no command{or_folder} {word!r}. {names_hint(word, self.commands)}"


def usage_message(error: Any) -> str:
    """Return what to print about a mistake on the command line: which command, what is wrong, where to read on.

    Nothing, where a command was given alone and its help stands there already.
    """
    if type(error).__name__ == "NoArgsIsHelpError":
        return ""
    context = getattr(error, "ctx", None)
    if context is None:
        return f"truestep: {_option_without_value_message(error.format_message())}\n"
    return f"{context.command_path}: {_describe_usage_error(error, context)}\nHow it is used: {context.command_path} --help\n"


def _describe_usage_error(error: Any, context: Any) -> str:
    if hasattr(error, "possibilities"):
        return _no_option_message(error.option_name, context)
    message = str(error.format_message())
    if message.startswith("Missing"):
        return _missing_parameter_message(
            message.partition(" Choose from:")[0].removesuffix("."), error, context
        )
    if match := re.fullmatch(r"Got unexpected extra argument(?:s|\(s\))? \((.*)\)", message):
        return _too_many_arguments_message(match[1], context)
    if match := re.fullmatch(
        r"Invalid value for '?([^':]+)'?(?: / '[^']+')*: (?:Value error, )?(.*)", message, re.DOTALL
    ):
        return f"{match[1]}: {_add_nearest_choices(match[2], _value_given_in_error(error))}"
    return message


def _too_many_arguments_message(words: str, context: Any) -> str:
    """Say which words a command does not take; a command behind its folder stands before it."""
    group, first = context.parent.command, words.split(maxsplit=1)[0]
    if first in getattr(group, "commands", ()) or first in _REMOVING:
        name = "prune" if first in _REMOVING else first
        whole = f"{context.parent.command_path} {name} FOLDER"
        return f"{first!r} stands behind the folder, and a command stands before it. Write: {whole}"
    usage = " ".join(context.get_usage().split()).removeprefix("Usage: ")
    return f"{words!r} is more than this command takes. Write: {usage}"


def _missing_parameter_message(message: str, error: Any, context: Any) -> str:
    """Say what is missing, what that is, and a line to write."""
    if not (example := context.command.epilog or "").startswith(EXAMPLE):
        usage = " ".join(context.get_usage().split()).removeprefix("Usage: ")
        return f"{message}. Write: {usage}"
    told = str(getattr(getattr(error, "param", None), "help", None) or "").rstrip(".")
    meant = f": {told[0].lower()}{told[1:]}" if told else ""
    return f"{message}{meant}. {example}"


def refuse_command_option(word: str, context: Any) -> None:
    """End with a message where an option stands in the place of the file whose own arguments are passed on unread."""
    if word.startswith("-"):
        context.fail(_no_option_message(word.partition("=")[0], context))


def _no_option_message(word: str, context: Any) -> str:
    known = {name for option in context.command.params for name in _long_names(option)}
    if elsewhere := _OPTIONS.get((str(context.info_name), word)):
        return f"There is no option {word!r} here. {elsewhere}."
    words = {name.removeprefix("--").replace("-", "_"): name for name in sorted(known)}
    if here := option_by_other_name(word.strip("-").replace("-", "_"), list(words)):
        return f"There is no option {word!r}. Here it is called {words[here]}."
    nearest = names_hint(word, known | {"--help"})
    if context.command.name == "doctor":
        return (
            f"There is no option {word!r} of the doctor's. If it is the script's, it stands behind the file: "
            f"truestep doctor train.py {word}. {nearest}"
        )
    return f"There is no option {word!r}. {nearest}"


def _option_without_value_message(message: str) -> str:
    """Say what an option lacks, as the parser does not know for which command it was parsed."""
    match = re.fullmatch(r"Option '([^']+)' requires (an argument|\d+ arguments)\.?", message)
    if not match:
        return message
    option, wanted = match.groups()
    what = "a value" if wanted == "an argument" else wanted.replace("arguments", "values")
    return f"{option} needs {what} after it; the command with --help shows which."


def _long_names(option: Any) -> list[str]:
    return [name for name in (*option.opts, *option.secondary_opts) if name.startswith("--")]


def _value_given_in_error(error: Any) -> str:
    """Return what was written for a value, as the validation that refused it knows it; nothing where none says."""
    refused = error.__cause__ or error.__context__
    found = refused.errors() if callable(getattr(refused, "errors", None)) else []
    return repr(found[0]["input"]) if found else ""


def _add_nearest_choices(message: str, given: str) -> str:
    """Name the nearest of the values that an option takes; other messages stay as they are."""
    if match := re.fullmatch(r"Input should be (greater|less) than or equal to (\S+)", message):
        return f"It takes a number of at {'least' if match[1] == 'greater' else 'most'} {match[2]}."
    if "valid integer" in message or "valid number" in message:
        return f"It takes a {'whole ' if 'integer' in message else ''}number{f', and {given} is none' * bool(given)}."
    value, known, *_ = [*message.split(" is not one of "), ""]
    if not known:
        return message
    names = re.findall("'([^']*)'", known)
    return f"There is no {value}. {names_hint(value.strip(_QUOTE), names)}"
