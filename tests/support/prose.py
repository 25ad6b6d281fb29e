# SPDX-License-Identifier: Apache-2.0
"""The sentences of a page and their lengths; `python tests/support/prose.py docs/running.md ...` prints them by page."""

import re
import sys
from dataclasses import dataclass
from pathlib import Path

NOT_PROSE = re.compile(r"^( *)(`{3,}|:{3,}).*?^\1\2|<!--.*?-->|^#+ .*?$", re.MULTILINE | re.DOTALL)
ITEM = re.compile(r"^\s*(?:[-*+]|\d+\.)\s+|^>\s?", re.MULTILINE)
ENDS = re.compile(r"(?<=[.!?])[)\"*_]*\s+(?=[\"(*_`\[A-Z0-9]|[a-z]+\.)|:\s*(?:\n|$)")


@dataclass(frozen=True)
class Prose:
    """A page's sentences; cells of tables stand apart, since few of them are sentences."""

    sentences: list[str]
    cells: list[str]

    @property
    def num_words(self) -> int:
        return sum(map(length, [*self.sentences, *self.cells]))

    @property
    def mean(self) -> float:
        return sum(map(length, self.sentences)) / max(1, len(self.sentences))

    @property
    def longest(self) -> str:
        return max([*self.sentences, *self.cells], key=length, default="")


def length(sentence: str) -> int:
    """Return the number of words; a piece of code is one, a sign between spaces none."""
    return len(re.findall(r"[^\s]*\w[^\s]*", sentence))


def plain(text: str) -> str:
    """Leave what is read: a link's text for the link, a piece of code as one word."""
    text = re.sub(r"``.+?``|`[^`]+`", "Code", text)
    return re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)


def divided(text: str) -> list[str]:
    return [each.strip() for each in ENDS.split(text) if re.search(r"\w", each)]


def prose(text: str) -> Prose:
    """Return the sentences of a page in Markdown."""
    text = plain(NOT_PROSE.sub("\n\n", text))
    rows = re.findall(r"^\s*\|(.*)\|\s*$", text, re.MULTILINE)
    cells = [part for row in rows for cell in row.split("|") for part in divided(cell)]
    text = ITEM.sub("\n\n", re.sub(r"^\s*\|.*$", "\n", text, flags=re.MULTILINE))
    paragraphs = [" ".join(part.split()) for part in re.split(r"\n\s*\n", text)]
    return Prose([each for part in paragraphs for each in divided(part)], cells)


if __name__ == "__main__":
    print("| page | words | mean | longest |\n|---|--:|--:|--:|")
    for name in sys.argv[1:]:
        page = prose(Path(name).read_text("utf-8"))
        print(f"| {name} | {page.num_words} | {page.mean:.1f} | {length(page.longest)} |")
