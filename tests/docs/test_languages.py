# SPDX-License-Identifier: Apache-2.0
"""A page in two languages shows the same code, commands, numbers, codes and links in both."""

import ast
import os
import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PAGES = {
    "README.md": "README.zh.md",
    "docs/tutorial.md": "docs/zh/tutorial.md",
    "docs/doctor.md": "docs/zh/doctor.md",
    "docs/doctor-run.md": "docs/zh/doctor-run.md",
    "docs/mistakes.md": "docs/zh/mistakes.md",
}
CODES = re.compile(r"\b[A-Z]{3,5}\d{3}\b")
DECIMALS = re.compile(r"\d+\.\d+(?:\.\d+)?")


def text_of(page: str) -> str:
    return (REPOSITORY / page).read_text("utf-8")


def blocks(text: str) -> list[tuple[str, str]]:
    """Return fenced blocks by their language, without comments; Python whatever its line breaks."""
    found = re.findall(r"^```(\w*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [(kind, without_comments(kind, code)) for kind, code in found]


def without_comments(kind: str, code: str) -> str:
    """A comment is a sentence, and is translated; of a program's output every character is the same."""
    if kind == "python":
        return ast.unparse(ast.parse(code))
    return re.sub(r" +# .*$", "", code, flags=re.MULTILINE) if kind in ("bash", "toml") else code


def links(page: str) -> list[str]:
    """Return where the links of a page lead: files of the repository by the English page's path, or an address."""
    text = re.sub(r"^```.*?^```", "", text_of(page), flags=re.MULTILINE | re.DOTALL)
    found = [a or b for a, b in re.findall(r"\]\(([^)]+)\)|(?:src|srcset)=\"([^\"]+)\"", text)]
    paths = [
        each if ":" in each else os.path.normpath(Path(page).parent / each.partition("#")[0])
        for each in found
    ]
    assert [each for each in paths if ":" not in each and not (REPOSITORY / each).exists()] == []
    english = {chinese: name for name, chinese in PAGES.items()}
    return sorted(english.get(each, each) for each in paths)


@pytest.mark.parametrize(("english", "chinese"), PAGES.items())
def test_both_show_the_same_blocks_numbers_codes_and_links(english, chinese):
    assert blocks(text_of(chinese)) == blocks(text_of(english))
    assert links(chinese) == links(english)
    for pattern in (CODES, DECIMALS):
        assert pattern.findall(text_of(chinese)) == pattern.findall(text_of(english))


def test_each_mistake_has_the_same_checks_in_both():
    rows = [
        [
            (number, CODES.findall(rest))
            for number, rest in re.findall(r"^\| (\d+) (.*)$", text_of(page), re.MULTILINE)
        ]
        for page in ("docs/mistakes.md", "docs/zh/mistakes.md")
    ]
    assert rows[0] == rows[1]
    assert len(rows[0]) == 96


@pytest.mark.parametrize("page", PAGES.values())
def test_the_chinese_page_is_set_as_chinese_is(page):
    """Full-width marks beside Chinese; no half-width comma or full stop between two characters of it."""
    prose = re.sub(r"^```.*?^```|`[^`]*`", "", text_of(page), flags=re.MULTILINE | re.DOTALL)
    assert re.findall(r"[\u4e00-\u9fff][,.;:?!][\u4e00-\u9fff\s]", prose) == []
