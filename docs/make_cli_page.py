# SPDX-License-Identifier: Apache-2.0
"""Write the page of the command line from what the commands say of themselves: `python docs/make_cli_page.py`."""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parent / "cli.md"
TOP = """\
# Command line

<!-- Written by docs/make_cli_page.py; `python docs/make_cli_page.py` writes it anew. -->

`truestep` alone says what can be done; `-h` or `--help` explains any command. A mistyped command or option is answered with
the nearest names. Results go to standard output, progress and messages to standard error; `--json`, where a command has it,
prints exactly one document with a `schema_version`. Off a terminal there are no control codes; `NO_COLOR` is respected.

`eval "$(truestep completion bash)"` in `~/.bashrc` makes the Tab key complete commands and options; zsh and fish have
[theirs](#truestep-completion).

(exit-status)=
## Exit status

| status | meaning |
|---|---|
| 0 | fine |
| 1 | a check failed |
| 2 | usage: an unknown option, a value that can't be used |
| 3 | something is missing; the message names what to install |
| 4 | a selection can't be met |
| 130 | interrupted |

A training stopped by SIGTERM exits with 143, by SIGUSR1 with 138, or as asked; a child's own failing status is passed on.
"""


def commands() -> Iterator[list[str]]:
    """Yield every command as the words that call it: the program itself, each command, each command of a group."""
    import typer

    from truestep.cli.main import COMMANDS, module_of_command

    yield []
    for name in COMMANDS:
        yield [name]
        command: Any = typer.main.get_command(
            import_module(module_of_command(name)).app
        )
        yield from ([name, part] for part in sorted(getattr(command, "commands", {})))


def help_of(words: list[str]) -> str:
    """Return what `truestep WORDS --help` prints."""
    from truestep.cli.main import app

    with redirect_stdout(io.StringIO()) as printed, suppress(SystemExit):
        app([*words, "--help"], prog_name="truestep")
    return "\n".join(line.rstrip() for line in printed.getvalue().splitlines()).strip(
        "\n"
    )


def section(words: list[str]) -> str:
    """Return the part of the page about one command."""
    title = " ".join(["truestep", *words])
    return f"\n{'#' * min(2 + max(len(words) - 1, 0), 3)} `{title}`\n\n```text\n{help_of(words)}\n```\n"


def page() -> str:
    """Return the whole page."""
    return TOP + "".join(section(words) for words in commands())


if __name__ == "__main__":
    # before typer is imported: the width of its pages, and no colours
    os.environ.update(COLUMNS="80", TERMINAL_WIDTH="80", NO_COLOR="1", TERM="dumb")
    for name in ("FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS"):
        os.environ.pop(name, None)
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else PAGE
    target.write_text(page(), encoding="utf-8")
