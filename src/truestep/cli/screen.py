# SPDX-License-Identifier: Apache-2.0
"""How the commands of this room print: a screen that fits, or exactly one JSON document."""

import json
import os
import sys
from typing import TYPE_CHECKING, Any

from truestep.core.results import RenderableType, print_results

if TYPE_CHECKING:
    from rich.console import Console

PIPED_COLUMNS = 200  # off a terminal nothing needs to be folded


def console() -> "Console":
    """Return the console of stdout; off a terminal it is wide and has no control codes."""
    from rich.console import Console

    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")  # a terminal without UTF-8 shows ? and does not end the command
    fixed = os.environ.get("COLUMNS", "").isdigit()
    width = None if fixed or sys.stdout.isatty() else PIPED_COLUMNS
    return Console(width=width, emoji=False, highlight=False)


def show(result: RenderableType) -> None:
    """Print a result; off a terminal without the blanks that fill its lines."""
    print_results((result,), console())


def print_document(document: dict[str, Any]) -> None:
    """Print one JSON document, in ASCII: a command line on the screen may hold bytes that are no text."""
    sys.stdout.write(json.dumps(document, indent=2, allow_nan=False) + "\n")


def warn(message: str) -> None:
    """Print a message for the person, beside the results."""
    complain(f"truestep: {message}\n")


def complain(text: str) -> None:
    """Print on standard error; on a terminal lines are broken between words, elsewhere they stay whole."""
    if sys.stderr.isatty():
        text = "".join(f"{_folded(line)}\n" for line in text.splitlines())
    sys.stderr.write(text)


def _folded(line: str) -> str:
    import shutil
    import textwrap

    indent = line[: len(line) - len(line.lstrip())]
    width = max(20, shutil.get_terminal_size().columns)
    return textwrap.fill(
        line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
