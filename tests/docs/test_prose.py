# SPDX-License-Identifier: Apache-2.0
"""The manual reads well: no diary, short sentences, one word for one thing, code that fits a narrow screen."""

import os
import re
from pathlib import Path

import pytest
from support import warm
from support.pages import HAND_WRITTEN
from support.prose import length, prose

from truestep.cli.read import app as read

DOCS = Path(__file__).parents[2] / "docs"
# What was decided and what was tried: records, which are no part of the manual.
RECORDS = {"design.md", "log.md"}
MANUAL = [page for page in HAND_WRITTEN if page.name not in RECORDS]

# A record has its date and its machine; a page of the manual says what is so.
DIARY = re.compile(
    r"\b20\d\d-\d\d(?:-\d\d)?\b|\bXeon\b|\bEPYC\b|\bload (?:of )?\d|\bbusy (?:machine|cores?)\b|\b[Ss]ince then\b"
    r"|\bthe time before\b|\bsame day\b|\bwhere (?:it|they) took\b|\bquiet machine\b"
)

LONGEST = 40  # words of a sentence, on every page
LONG = {
    "cli.md": "written by the commands themselves",
}
# Pages that are read from top to bottom, and were written for it.
MEAN = 15
SMOOTH = {
    "doctor.md",
    "doctor-run.md",
    "doctor-watch.md",
    "doctor-files.md",
    "doctor-output.md",
    "experiments.md",
    "experiments-list.md",
    "relations.md",
    "running.md",
    "loop.md",
    "saving.md",
    "changing.md",
    "run-files.md",
    "keeping.md",
    "compared.md",
}
SMOOTH |= {
    "batches.md",
    "data.md",
    "data-orders.md",
    "data-reference.md",
    "streams.md",
    "checkpoints.md",
    "report.md",
    "choose-optimizer-and-schedule.md",
}
SMOOTH |= {"copies.md", "explain.md", "graph.md", "playground.md", "memory.md", "run-memory.md"}
SMOOTH |= {"many-processes.md", "clusters.md", "ranks.md", "processes-cost.md", "mirror.md"}
SMOOTH |= {
    f"howto/{name}.md"
    for name in (
        "spot-machines",
        "divided-weights",
        "shared-buffers",
        "whole-batch-losses",
        "memory-of-a-run",
        "without-a-data-set",
        "value-from-a-loss",
        "freeze-in-the-loop",
        "start-one-network-later",
        "what-a-seed-leaves-open",
    )
}
SMOOTH |= {"cookbook/seeds.md", "cookbook/gans.md", "tutorial.md", "mistakes.md", "wild.md", "find.md"}
SMOOTH |= {page.relative_to(DOCS).as_posix() for page in (DOCS / "laws").glob("*.md")}
SMOOTH_PAGES = [page for page in MANUAL if page.relative_to(DOCS).as_posix() in SMOOTH]

WIDTH = 88
CODE = re.compile(r"^( *)```(python|bash|console|toml|yaml)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)


def each(page: Path) -> str:
    return page.relative_to(DOCS).as_posix()


def written(page: Path) -> str:
    """A page without its code: names of files may have dates, and what a program prints is no sentence of ours."""
    text = re.sub(r"^( *)```.*?^\1```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", "", text)


@pytest.mark.parametrize("page", MANUAL, ids=each)
def test_a_page_is_no_diary(page):
    found = DIARY.findall(written(page))
    assert found == [], "figures with date and machine belong into benchmarks/"


@pytest.mark.parametrize("page", MANUAL, ids=each)
def test_a_mistake_is_called_a_mistake(page):
    """Mistake: in the user's code. Finding: what the doctor reports. Bug: a severity."""
    assert re.findall(r"\b[Ff]aults?\b", written(page)) == []


@pytest.mark.parametrize("page", MANUAL, ids=each)
def test_no_sentence_is_long(page):
    found = prose(page.read_text("utf-8"))
    long = [(length(one), one) for one in [*found.sentences, *found.cells] if length(one) > LONGEST]
    assert long == [] or each(page) in LONG


@pytest.mark.parametrize("page", SMOOTH_PAGES, ids=each)
def test_sentences_are_short_in_the_mean(page):
    assert prose(page.read_text("utf-8")).mean <= MEAN


@pytest.mark.parametrize("page", MANUAL, ids=each)
def test_a_line_of_code_fits_a_narrow_window(page):
    blocks = CODE.findall(page.read_text("utf-8"))
    lines = [(kind, line) for _, kind, code in blocks for line in code.splitlines()]
    ours = [line for kind, line in lines if kind != "console" or line.startswith("$")]  # the rest is printed
    assert [line for line in ours if len(line) > WIDTH] == []


def test_a_wide_block_scrolls_by_itself_on_a_phone():
    rules = (DOCS / "static" / "blocks.css").read_text("utf-8")
    assert re.search(r"\.highlight pre, pre \{[^}]*overflow-x: auto", rules)
    assert re.search(r"\.table-wrapper[^{]*\{[^}]*overflow-x: auto", rules)
    assert re.search(r"code\.literal \{[^}]*overflow-wrap: anywhere", rules)


def test_decisions_and_the_log_are_no_pages():
    """They stay in the repository; nothing leads there as to a page, and none is built of them."""
    assert [name for name in RECORDS if f'"{name}"' not in (DOCS / "conf.py").read_text("utf-8")] == []
    links = {
        each(page): re.findall(r"\]\((?:\.\./)*(?:design|log)\.md", page.read_text("utf-8"))
        for page in MANUAL
    }
    assert {name: found for name, found in links.items() if found} == {}
    index = (DOCS / "index.md").read_text("utf-8")
    assert re.findall(r"^(?:design|log)$", index, re.MULTILINE) == []


def test_the_first_example_of_the_doctor_is_what_it_says(tmp_path, monkeypatch):
    from typer.testing import CliRunner

    page = (DOCS / "doctor.md").read_text("utf-8")
    loop, shown = re.search(
        r"^```python\n(.*?)^```.*?^```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL
    ).groups()
    (tmp_path / "train.py").write_text(loop, "utf-8")
    monkeypatch.chdir(tmp_path)
    said = CliRunner().invoke(read, ["--no-cache", "train.py"], env={"COLUMNS": "88"}).output
    assert said.rpartition("\n\n")[0] == shown.rstrip("\n")


def test_the_first_run_under_the_doctor_says_what_the_page_shows(tmp_path):
    page = (DOCS / "doctor-run.md").read_text("utf-8")
    script, shown = re.search(
        r"^```python\n(.*?)^```.*?^```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL
    ).groups()
    (tmp_path / "train.py").write_text(script, "utf-8")
    command = ("-m", "truestep", "doctor", "--no-experiments", "train.py")
    said = warm.run(*command, cwd=tmp_path, env={**os.environ, "COLUMNS": "88"})
    assert shown in said.stderr
