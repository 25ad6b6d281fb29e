# SPDX-License-Identifier: Apache-2.0
"""The pages of checks that the documentation's build writes: a table with each of them once, and a page for each."""

import importlib.util
import subprocess
from pathlib import Path

import pytest

from truestep.doctor.catalogue import checks

REPOSITORY = Path(__file__).parents[2]
SCRIPT = REPOSITORY / "docs" / "generate_checks.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("generate_checks", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_check_is_in_the_table_and_has_its_page(script):
    table, pages = script.table(), script.pages()
    for each in checks().values():
        (row,) = (line for line in table.splitlines() if line.startswith(f"| [{each.code}]"))
        assert f"(checks/{each.code}.md) | {each.severities()[0]}" in row
        assert each.page().summary in row
        page = pages[script.PAGES / f"{each.code}.md"]
        assert f"({each.code})=\n# {each.code}: {each.name()}\n" in page
        for part in (each.page().why, each.page().fix, each.page().good):
            assert part in page


def test_pages_of_checks_that_are_gone_are_taken_away(script, tmp_path, monkeypatch):
    monkeypatch.setattr(script, "TABLE", tmp_path / "checks.md")
    monkeypatch.setattr(script, "PAGES", tmp_path / "checks")
    (tmp_path / "checks").mkdir()
    (tmp_path / "checks" / "GONE001.md").write_text("")
    script.write()
    assert {each.stem for each in (tmp_path / "checks").iterdir()} == set(checks())


def test_the_pages_are_written_by_the_build_and_not_kept(script):
    names = [f"{path.relative_to(REPOSITORY)}" for path in (script.TABLE, script.PAGES)]
    kept = subprocess.run(
        ["git", "ls-files", *names], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert kept.stdout == ""
    ignored = (REPOSITORY / ".gitignore").read_text("utf-8").splitlines()
    assert {names[0], f"{names[1]}/"} <= set(ignored)
    assert "generate_checks.write()" in (REPOSITORY / "docs" / "conf.py").read_text("utf-8")
