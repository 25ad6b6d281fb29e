# SPDX-License-Identifier: Apache-2.0
"""The cookbook is whole: every page has its parts and proves something, every snippet has its row, what is named exists."""

import re
from pathlib import Path

import pytest

import truestep
from truestep.doctor.catalogue import checks
from truestep.doctor.finding import Severity
from truestep.doctor.linting import read_text
from truestep.doctor.page import PRELUDE

REPOSITORY = Path(__file__).parents[2]
COOKBOOK = REPOSITORY / "docs" / "cookbook"
TABLE = COOKBOOK / "replaces.md"
PAGES = sorted(COOKBOOK.glob("*.md"))
RECIPES = [page for page in PAGES if page.name not in ("index.md", TABLE.name)]
PARTS = ["In short", "What people write", "What is wrong", "Plain PyTorch", "Truestep"]
BESIDE = [
    part for part in PARTS if part != "What people write"
]  # each mistake stands beside what comes of it
SNIPPETS = REPOSITORY / "tests" / "doctor" / "snippets.txt"
CODE = re.compile(r"\b[A-Z]{3,5}\d{3}\b")
SHOWN = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
RUN = re.compile(r"(?<!-->\n)^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
PROOF = re.compile(r"\bassert\b|\bassert_close\(|\braises\(")


def name_of(page: Path) -> str:
    return page.stem


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def rows() -> list[list[str]]:
    """The cells of each row: snippet, plain PyTorch, Truestep, checks."""
    lines = [line for line in text_of(TABLE).splitlines() if re.match(r"\| \d", line)]
    return [[cell.strip() for cell in line.strip("|").split(" |")] for line in lines]


def snippets() -> dict[str, set[str]]:
    """Each snippet's number and name, with the codes that the doctor's own test expects in it."""
    sections = re.split(r"^## ", text_of(SNIPPETS), flags=re.MULTILINE)[1:]
    return {section.splitlines()[0].strip(): set(CODE.findall(section)) for section in sections}


def exists(name: str) -> bool:
    piece = truestep
    for part in name.split("."):
        if not hasattr(piece, part):
            return False
        piece = getattr(piece, part)
    return True


@pytest.mark.parametrize("page", RECIPES, ids=name_of)
def test_a_page_has_its_parts_in_order(page):
    prose = re.sub(r"```.*?```", "", text_of(page), flags=re.DOTALL)
    headings = re.findall(r"^## (.+)$", prose, re.MULTILINE)
    assert [heading for heading in headings if heading in PARTS] in (PARTS, BESIDE)


@pytest.mark.parametrize("page", RECIPES, ids=name_of)
def test_a_page_begins_with_a_right_snippet_that_stands_alone(page):
    short = text_of(page).partition("\n## In short\n")[2].partition("\n## ")[0]
    code = "\n".join(SHOWN.findall(short))
    assert 0 < code.count("\n") <= 20
    reading = read_text(code)
    assert [each for each in reading.findings if each.severity in (Severity.BUG, Severity.RISK)] == []
    assert "import " in code


@pytest.mark.parametrize("page", RECIPES, ids=name_of)
def test_a_page_proves_what_it_says(page):
    wrong, _, rest = text_of(page).partition("\n## Plain PyTorch\n")
    assert any(PROOF.search(block) for block in RUN.findall(wrong)), "no fault is asserted"
    assert any(PROOF.search(block) for block in RUN.findall(rest)), "the right forms are not compared"


@pytest.mark.parametrize("page", RECIPES, ids=name_of)
def test_a_page_is_in_the_table(page):
    assert f"]({page.name})" in text_of(TABLE)


@pytest.mark.parametrize("page", RECIPES, ids=name_of)
def test_what_the_doctor_finds_in_a_snippet_stands_in_its_row(page):
    text = text_of(page)
    goes_round = text.partition("\n## What people write\n")[2].partition("\n## What is wrong\n")[0]
    goes_round = goes_round or text.partition("\n## What is wrong\n")[2].partition("\n## Plain PyTorch\n")[0]
    assert goes_round
    found = {each.code for each in read_text(PRELUDE + "\n".join(SHOWN.findall(goes_round))).findings}
    named = {code for row in rows() if f"]({page.name})" in row[2] for code in CODE.findall(row[3])}
    assert sorted(found - named) == []


@pytest.mark.parametrize("page", RECIPES, ids=name_of)
def test_the_doctor_finds_nothing_wrong_with_the_right_forms(page):
    whole = PRELUDE + "\n".join(SHOWN.findall(text_of(page)))
    before = PRELUDE + "\n".join(SHOWN.findall(text_of(page).partition("\n## Plain PyTorch\n")[0]))
    reading = read_text(whole)
    wrong = [each for each in reading.findings if each.place.line > before.count("\n")]
    assert [each for each in wrong if each.severity in (Severity.BUG, Severity.RISK)] == []
    assert (reading.failures, reading.unreadable) == ([], [])


def test_every_snippet_has_its_row_with_the_checks_that_find_its_faults():
    expected = snippets()
    assert [row[0] for row in rows()] == list(expected)
    for name, plain, piece, found_by in rows():
        assert plain, name
        assert piece, name
        assert expected[name] <= set(CODE.findall(found_by)), name
        assert sorted(set(CODE.findall(found_by))) == CODE.findall(found_by), name


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_check_and_every_piece_that_is_named_exists(page):
    text = text_of(page)
    pieces = set(re.findall(r"\bts\.(\w+(?:\.\w+)*)", text))
    assert sorted(set(CODE.findall(text)) - set(checks())) == []
    assert sorted(name for name in pieces if not exists(name)) == []
