# SPDX-License-Identifier: Apache-2.0
"""What is said of one error, and its layout: at most twelve lines."""

import shutil
import sys
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from truestep.core.result_display import result_to_plain

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO

COLUMNS = 100
_FEWEST_COLUMNS = 40
MAX_LINES = 12
TITLE = "truestep explains: "
# each part with its most lines; with the title they are MAX_LINES: Log stands in place of With and Check
_PARTS = {"Means": 2, "Here": 3, "At": 1, "With": 1, "Check": 1, "Log": 1, "Fix": 3}


def note_width_in_columns(stream: "TextIO") -> int:
    """Return how wide a note is: as a terminal that is narrower than usual, which else breaks it within words."""
    try:
        is_terminal = stream.isatty()
    except (AttributeError, ValueError):  # there is none, as below pythonw, or it is closed
        is_terminal = False
    return min(COLUMNS, max(_FEWEST_COLUMNS, shutil.get_terminal_size().columns)) if is_terminal else COLUMNS


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """One error explained: strings alone, so that it holds no value of the run."""

    name: str
    error: str  # type and first line of the message
    means: str
    here: str | None  # the likeliest cause in this run
    at: str | None  # the line of the user's code, with its text
    values: tuple[str, ...]  # what that line names: shapes, dtypes, devices, layers
    check: str | None  # what the doctor's checks find in that file
    fix: str
    not_told: str | None  # what a log can't tell

    def note(self) -> str:
        """Return the explanation as the note of an exception: at most 12 lines."""
        return "\n".join(self.lines(note_width_in_columns(sys.stderr)))

    def lines(self, columns: int = COLUMNS) -> list[str]:
        """Return the lines of the note: at most 12 of a hundred columns, or as much text in more lines that are shorter."""
        parts = {
            "Means": self.means,
            "Here": self.here or "",
            "At": self.at or "",
            "With": "; ".join(self.values),
            "Check": self.check or "",
            "Log": f"can't tell {self.not_told}" if self.not_told else "",
            "Fix": self.fix,
        }
        found = [f"{TITLE}{self.name}"]
        for label, text in parts.items():
            if text:
                found += _wrap_labelled_paragraph(
                    label, text, -(-_PARTS[label] * COLUMNS // columns), columns
                )
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as JSON values."""
        return dict(result_to_plain(self))


def _wrap_labelled_paragraph(label: str, text: str, most: int, columns: int = COLUMNS) -> "Iterator[str]":
    start = f"  {label + ':':<7}"
    wrapped = textwrap.wrap(
        " ".join(text.split()), columns, initial_indent=start, subsequent_indent=" " * len(start),
        break_long_words=False, break_on_hyphens=False, max_lines=most, placeholder=" ...",
    )  # fmt: skip
    yield from (line if len(line) <= 2 * COLUMNS else line[: 2 * COLUMNS] + " ..." for line in wrapped)
