# SPDX-License-Identifier: Apache-2.0
"""The comparisons with other libraries, which only run where those are installed: they compile, and the page has them all."""

import ast
import re
import runpy
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PEERS = REPOSITORY / "benchmarks" / "peers"
SCRIPTS = {path.name for path in PEERS.glob("*.py") if '__name__ == "__main__"' in path.read_text("utf-8")}


@pytest.mark.parametrize("path", sorted(PEERS.glob("*.py")), ids=lambda path: path.name)
def test_a_comparison_compiles_and_its_docstring_says_how_to_run_it(path):
    tree = ast.parse(path.read_text("utf-8"))
    compile(tree, str(path), "exec")
    assert (f"`python benchmarks/peers/{path.name}`" in ast.get_docstring(tree)) == (path.name in SCRIPTS)


def test_the_lines_of_the_same_program_are_those_that_the_pages_name(monkeypatch):
    """And of each the docstring says how it is run."""
    monkeypatch.setattr("importlib.metadata.version", lambda name: "0")
    monkeypatch.syspath_prepend(PEERS)
    try:
        script = runpy.run_path(str(PEERS / "same_program.py"))
    finally:
        sys.modules.pop("table", None)
    programs = {name: PEERS / "programs" / name for name in script["LIBRARIES"]}
    counted = [str(script["lines_of"](program)) for program in programs.values()]
    for page in ("README.md", "README.zh.md", "docs/peers.md"):
        text = (REPOSITORY / page).read_text("utf-8")
        shown = re.findall(
            r"^\| (?:Truestep|Ignite|Lightning|Fabric|Accelerate)\b[^|]*\| (\d+) \|", text, re.MULTILINE
        )
        assert shown == counted, page
    for name, program in programs.items():
        assert f"`python {name} FOLDER`" in ast.get_docstring(ast.parse(program.read_text("utf-8")))


@pytest.mark.parametrize("place", ["docs/peers.md", "benchmarks/Makefile"])
def test_every_comparison_is_named_and_no_other(place):
    named = set(re.findall(r"\bpeers/(\w+\.py)", (REPOSITORY / place).read_text("utf-8")))
    assert named == SCRIPTS


def test_what_is_said_of_the_better_ones_was_measured():
    """Every figure of that section stands in a record of measurements, and every script that it names is there."""
    page = (REPOSITORY / "docs/peers.md").read_text("utf-8")
    section = page.partition("## Where another library is better")[2].partition("\n## ")[0]
    records = (REPOSITORY / "benchmarks").glob("*.md")
    known = "\n".join(path.read_text("utf-8") for path in records)
    prose = re.sub(r"`[^`]*`|0\.1\.0|\d{4}-\d\d-\d\d", "", section)
    figures = set(re.findall(r"\b\d+\.\d+\b", prose)) - {"0.3"}  # the sizes of two cases
    assert len(figures) >= 15
    assert [each for each in figures if not re.search(rf"(?<![\d.]){re.escape(each)}(?![\d])", known)] == []
    scripts = re.findall(r"python (benchmarks/[\w/]+\.py)", page)
    assert [each for each in scripts if not (REPOSITORY / each).exists()] == []
