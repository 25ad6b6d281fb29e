# SPDX-License-Identifier: Apache-2.0
"""The lines of the list of mistakes that name a check, in Chinese: the wheel holds that page as the repository has it."""

import re
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

PAGE = "docs/zh/mistakes.md"
_REPOSITORY = Path(__file__).parents[3]
_ROW = re.compile(r"\| \d+ \| (.+?) \| (.+) \|$")


@dataclass(frozen=True)
class ListedMistake:
    """A row of the list: the mistake in its words, and the line where the row stands."""

    words: str
    line: int

    def __str__(self) -> str:
        return f"{self.words} ({PAGE}:{self.line})"


def listed_mistakes(code: str) -> list[ListedMistake]:
    """Return the rows that name a check; none where neither the package nor its repository has the page."""
    rows = [(line, _ROW.match(row)) for line, row in enumerate(_mistakes_page_text().splitlines(), 1)]
    return [ListedMistake(row[1], line) for line, row in rows if row and code in row[2]]


def _mistakes_page_text() -> str:
    """Return the page from the package, or from the repository in which the package is used as it is."""
    packaged = resources.files("truestep.doctor").joinpath("mistakes.zh.md")
    if packaged.is_file():
        return packaged.read_text("utf-8")
    page = _REPOSITORY / PAGE
    return page.read_text("utf-8") if page.is_file() else ""
