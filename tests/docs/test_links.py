# SPDX-License-Identifier: Apache-2.0
"""Links work where the pages are read as files, on a repository's site: each has a text, and leads to what is there."""

import re
import runpy
from pathlib import Path

import pytest

from truestep.doctor.catalogue import checks

REPOSITORY = Path(__file__).parents[2]
DOCS = REPOSITORY / "docs"
MADE = {
    DOCS / "checks.md",
    DOCS / "explained.md",
}  # written when the documentation is built: a clone has none
PAGES = [
    *(REPOSITORY / name for name in ("README.md", "README.zh.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *(
        page
        for page in sorted(DOCS.rglob("*.md"))
        if "_build" not in page.parts and page.parent.name != "checks"
    ),
]
PAGES = [page for page in PAGES if page not in MADE]
LINK = re.compile(r"(?<!!)\[([^\[\]]*)\]\(([^()\s]+)\)")
CODE = re.compile(r"(?<![A-Za-z0-9])[A-Z]{3,5}\d{3}(?![A-Za-z0-9])")


def links(page: Path) -> list[tuple[str, str]]:
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    return LINK.findall(re.sub(r"``[^`]*``", "", text))


def each(page: Path) -> str:
    return page.relative_to(REPOSITORY).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=each)
def test_each_link_has_a_text_and_leads_to_a_file(page):
    found = links(page)
    assert [target for text, target in found if not text.strip()] == []
    paths = [target.partition("#")[0] for _, target in found if ":" not in target]
    there = {path: (page.parent / path).resolve() for path in paths if path}
    assert [path for path, file in there.items() if not file.exists() or file in MADE] == []


def anchors(page: Path) -> set[str]:
    """Return what a link to a page may name: its headings as a repository's site spells them, and labels."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    titles = [
        re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title)
        for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    ]
    spelt = {re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-") for title in titles}
    return spelt | set(re.findall(r"^\(([^)]+)\)=$", text, re.MULTILINE))


@pytest.mark.parametrize("page", PAGES, ids=each)
def test_an_anchor_leads_to_a_heading(page):
    targets = [target.split("#", 1) for _, target in links(page) if "#" in target and ":" not in target]
    pages = [((page.parent / path).resolve() if path else page, anchor) for path, anchor in targets]
    known = [(file, anchor) for file, anchor in pages if file not in MADE and file.suffix == ".md"]
    assert [anchor for file, anchor in known if anchor not in anchors(file)] == []


@pytest.mark.parametrize("page", [page for page in PAGES if page.is_relative_to(DOCS)], ids=each)
def test_no_page_leads_into_the_source(page):
    """Who has the pages alone lacks it; `truestep checks CODE` prints the page of a check."""
    assert [target for _, target in links(page) if "/src/" in f"/{target}" and ":" not in target] == []
    assert re.findall(r"^```\{literalinclude\}.*/src/", page.read_text("utf-8"), re.MULTILINE) == []


def test_in_the_built_pages_a_code_leads_to_its_page():
    marked = runpy.run_path(str(DOCS / "conf.py"))["marked"]
    written = "# GRAD001\n\n| GRAD001, [a](b.py) | `truestep checks GRAD001` |\n\n```text\nGRAD001\n```\n见GRAD001。"
    built = written.replace("| GRAD001", "| [GRAD001](/checks/GRAD001.md)").replace(
        "见GRAD001", "见[GRAD001](/checks/GRAD001.md)"
    )
    assert marked(written) == built


def test_each_code_on_a_page_is_a_check():
    known = {*checks()}
    named = {each(page): CODE.findall(page.read_text("utf-8")) for page in PAGES if page.parent == DOCS}
    records = ("docs/design.md", "docs/log.md")
    assert {
        code for page, codes in named.items() if page not in records for code in codes if code not in known
    } == set()


@pytest.mark.parametrize("page", ["README.md", "README.zh.md", "docs/index.md", "docs/install.md"])
def test_how_the_pages_are_built_is_said_where_people_begin(page):
    assert "make docs" in (REPOSITORY / page).read_text("utf-8")
    assert re.search(r"^docs:", (REPOSITORY / "Makefile").read_text("utf-8"), re.MULTILINE)
