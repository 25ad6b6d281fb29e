# SPDX-License-Identifier: Apache-2.0
"""A command's own options that stand behind the file whose arguments are passed on unread."""

import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from typer.core import TyperCommand

from truestep.cli.usage import USAGE_ERROR
from truestep.core.guidance import option_by_other_name
from truestep.core.text_formatting import printable_text

END_OF_OPTIONS = "--"
_NEAR = 0.85  # as difflib counts; --gpu is no --cpu
_OF_OTHERS = ("launch",)  # whose options others' launchers have, and few scripts
_UNKNOWN = "unrecognized arguments: "


class CommandWithModuleOption(TyperCommand):
    """A command whose `-m MODULE` ends its own options, as Python's does: all that follows is the module's."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse what stands up to the module's name."""
        with_value = {
            name for each in self.params if not getattr(each, "is_flag", True) for name in each.opts
        }
        place = 0
        while place < len(args) and args[place] != END_OF_OPTIONS and args[place].startswith("-"):
            if args[place] == "-m":
                args = [*args[: place + 2], END_OF_OPTIONS, *args[place + 2 :]]
                break
            place += 2 if args[place] in with_value else 1
        return super().parse_args(ctx, args)


@dataclass(frozen=True)
class OptionsBehindFile:
    """Options of the command itself among the arguments of a script, and the command that would take them."""

    options: tuple[str, ...]
    command: str
    taker: str = "doctor"
    meant: tuple[str, ...] = ()
    """The options as the command spells them."""

    def __str__(self) -> str:
        found = shlex.join(self.options)
        return printable_text(
            f"The {self.taker} did not take {found}: what stands behind the file is the script's. For the {self.taker}: "
            f"{self.command}"
        )

    @classmethod
    def among(
        cls, context: Any, file: Sequence[str], arguments: Sequence[str], text: str | None = None
    ) -> "OptionsBehindFile | None":
        """Look through a script's arguments; None where none of them is an option that the command would take.

        Args:
            context: the command's, which knows its options.
            file: what names the script: `[FILE.py]` or `["-m", MODULE]`.
            arguments: what stands behind it.
            text: the script's; a misspelt option of the command is one whose name it does not hold.
        """
        own = [*command_options_among_words(context, arguments, text)]
        if not own:
            return None
        moved = [word for _, meant in own for word in meant]
        left = list(arguments)
        for option, _ in own:
            start = next(
                place for place in range(len(left)) if (*left[place : place + len(option)],) == option
            )
            del left[start : start + len(option)]
        before = _options_before_file(context, file, arguments)
        words = ["truestep", context.info_name, *before, *moved, *file, *left]
        given = tuple(word for option, _ in own for word in option)
        return cls(given, shlex.join(words), context.info_name, tuple(moved))


def missing_script_arguments_hint(file: Sequence[str], given: Sequence[str], said: str) -> str:
    """Return what to write where a script's own command line ended it, `said` being what it said of that."""
    if said.startswith(_UNKNOWN):
        unknown = said.removeprefix(_UNKNOWN).split()
        left = shlex.join([*file, *(each for each in given if each not in unknown)])
        return printable_text(
            f"{file[-1]} ended at its own command line, before a step, so there was nothing to watch: it has no option "
            f"{unknown[0]}, and what stands behind the file is its own. Leave that out: truestep doctor {left}"
        )
    needed = said.partition("required: ")[2].split(", ") if "required: " in said else ["..."]
    values = [f"{each} VALUE" if each.startswith("-") else each.upper() for each in needed]
    command = " ".join(["truestep doctor", shlex.join([*file, *given]), *values])
    return printable_text(
        f"{file[-1]} ended at its own command line ({said}), before a step, so there was nothing to watch. What it takes stands "
        f"behind the file: {command}"
    )


def command_options_among_words(
    context: Any, words: Sequence[str], text: str | None = None
) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Yield each option of a command among some words, with its value, as it is written and as it is spelt; `--` ends them.

    One whose value the command would refuse is not its own: `--output runs/a` is the script's.
    """
    known = {
        name: option for option in context.command.params for name in (*option.opts, *option.secondary_opts)
    }
    waiting = list(words)
    while waiting and waiting[0] != END_OF_OPTIONS:
        word = waiting.pop(0)
        name, equals, value = word.partition("=")
        spelt = _match_command_option(name, known, text) if name.startswith("-") else None
        spelt = spelt or (
            _match_other_launchers_option(name, known, text) if context.info_name in _OF_OTHERS else None
        )
        if spelt is None:
            continue
        option = known[spelt]
        source = context.get_parameter_source(option.name)
        if source is not None and source.name == "COMMANDLINE" and not option.multiple:
            continue  # the command was given its own in front of the file: this one is the script's
        if option.is_flag:
            if not equals:
                yield (word,), (spelt,)
            continue
        if not equals and not waiting:
            continue
        found = (word,) if equals else (word, waiting[0])
        if _accepts_option_value(option, value if equals else waiting[0], context):
            yield found, (f"{spelt}{equals}{value}", *found[1:])
            del waiting[: len(found) - 1]


def _match_command_option(name: str, known: Iterable[str], text: str | None) -> str | None:
    """Return the option that was meant; longer words than it, and those that the script's text holds, are the script's."""
    if not name.startswith("--"):  # one of a single letter may be anybody's who reads a command line
        is_read = text is None or re.search(rf"argv|pars|[\"']{name}[\"']", text)
        return name if name in known and not is_read else None
    if name in known:
        return name
    near = [] if text is None else get_close_matches(name, known, n=1, cutoff=_NEAR)
    bare = name.strip("-")
    if text is None or not near or name.startswith(near[0]):
        return None
    return None if bare in text or bare.replace("-", "_") in text else near[0]


def _match_other_launchers_option(name: str, known: Iterable[str], text: str | None) -> str | None:
    """Return the option that other launchers call by a name which the script's text does not hold."""
    bare = name.removeprefix("--").replace("-", "_")
    words = {each.removeprefix("--").replace("-", "_"): each for each in known if each.startswith("--")}
    other = option_by_other_name(bare, list(words)) if name.startswith("--") and text is not None else None
    return words[other] if other and text is not None and bare not in text.replace("-", "_") else None


def _accepts_option_value(option: Any, value: str, context: Any) -> bool:
    try:
        option.process_value(context, [value] if option.multiple else value)
    except USAGE_ERROR:
        return False
    return True


def _options_before_file(context: Any, file: Sequence[str], arguments: Sequence[str]) -> list[str]:
    """Return the options that were given in front of the file."""
    given, behind = sys.argv[1:], [*file, *arguments]
    if behind == given[-len(behind) :] and given[:1] == [context.info_name]:
        return given[1 : -len(behind)]
    return []
