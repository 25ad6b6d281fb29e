# SPDX-License-Identifier: Apache-2.0
"""How the commands of this room print: a screen that fits, or exactly one JSON document."""

import json
import math
import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from truestep.core.os_specific import has_pipe_reader
from truestep.core.result_display import RenderableType, Result, print_results
from truestep.core.text_formatting import printable_text, wrap_line

if TYPE_CHECKING:
    from truestep.core.rich_imports import Console

PIPED_COLUMNS = 200  # off a terminal nothing needs to be folded


def command_console() -> "Console":
    """Return the console of stdout; off a terminal it is wide and has no control codes."""
    from truestep.core.rich_imports import Console

    replace_unencodable_in_stdout()
    fixed = os.environ.get("COLUMNS", "").isdigit()
    width = None if fixed or sys.stdout.isatty() else PIPED_COLUMNS
    return Console(width=width, emoji=False, highlight=False)


def replace_unencodable_in_stdout() -> None:
    """Have stdout show ? for what its encoding lacks (a terminal without UTF-8, a pipe on Windows), which else ends the command."""
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")


def print_result_on_screen(result: RenderableType) -> None:
    """Print a result; off a terminal without the blanks that fill its lines."""
    print_results((result,), command_console())


def print_json_document(document: dict[str, Any]) -> None:
    """Print one JSON document, in ASCII: a command line on the screen may hold bytes that are no text."""
    sys.stdout.write(json.dumps(_strict_json_value(document), indent=2, allow_nan=False) + "\n")


def _strict_json_value(value: Any) -> Any:
    """Return a value as strict JSON can hold it: NaN and the infinities as strings, as in metrics.jsonl."""
    if isinstance(value, dict):
        return {key: _strict_json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict_json_value(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    return value


def show_result(result: Result, *, as_json: bool) -> None:
    """Print a result: as one JSON document, or drawn for people."""
    print_json_document(result.to_dict()) if as_json else print_result_on_screen(result)


def print_line_on_screen(message: str) -> None:
    """Print a line among the results, in which no name steers the terminal."""
    sys.stdout.write(f"{printable_text(message)}\n")


def warn_on_screen(message: str) -> None:
    """Print a message for the person, beside the results."""
    print_on_stderr(f"truestep: {message}\n")


def print_on_stderr(text: str) -> None:
    """Print on standard error; on a terminal lines are broken between words, elsewhere they stay whole."""
    text = printable_text(text)
    if sys.stderr.isatty():
        text = "".join(f"{_wrap_line(line)}\n" for line in text.splitlines())
    sys.stderr.write(text)


def is_stdout_reader_gone() -> bool:
    """Whether nobody reads stdout any more, as after `| head`; True also where the system can't tell."""
    return not has_pipe_reader(sys.stdout.fileno())


def print_wrapped_lines(lines: Iterable[str]) -> None:
    """Print lines; on a terminal they are broken between words, but for code, which stands behind four blanks or more."""
    text = printable_text("\n".join(lines))
    if sys.stdout.isatty():
        text = "\n".join(line if line.startswith("    ") else _wrap_line(line) for line in text.split("\n"))
    replace_unencodable_in_stdout()
    sys.stdout.write(f"{text}\n")


def _wrap_line(line: str) -> str:
    import re
    import shutil

    width = max(20, shutil.get_terminal_size().columns)
    column = re.match(r" *(?:\S+ {2,})?", line)  # a name and what is said of it, as in a table
    hang = column.end() if column and column.end() < width // 2 else len(line) - len(line.lstrip())
    return wrap_line(line, width, hang)
