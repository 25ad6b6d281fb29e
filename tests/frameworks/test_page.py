# SPDX-License-Identifier: Apache-2.0
"""The scripts of the page on exact resume, its own and those in examples/, run and print what it shows."""

import re
from pathlib import Path

import pytest

import frameworks

pytestmark = pytest.mark.xdist_group("frameworks")  # one process that the others are forked from

REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "docs" / "howto" / "lightning-and-trainer.md").read_text("utf-8")
BLOCK = re.compile(
    r"^<!--- run by \S+ -->\n```python\n(.*?)^```\n\nIt prints:\n\n```text\n(.*?)^```",
    re.MULTILINE | re.DOTALL,
)
EXAMPLES = sorted((REPOSITORY / "examples" / "exact_resume").glob("in_*.py"))


def words_printed(script: str, folder: Path) -> str:
    """Run a script; what it says of its folder is said of a relative one."""
    (folder / "train.py").write_text(script, "utf-8")
    done = frameworks.run("train.py", cwd=folder)
    assert done.returncode == 0, done.stderr
    return " ".join(f"{done.stdout}{done.stderr}".replace(f"{folder}/", "").split())


def test_the_blocks_of_the_page_print_what_stands_below_them(tmp_path):
    blocks = BLOCK.findall(PAGE)
    assert len(blocks) == PAGE.count("<!--- run by ") == 2
    printed = words_printed("\n\n".join(code for code, _ in blocks), tmp_path)
    for _, shown in blocks:
        lines = shown.splitlines() if "kill" in shown else [shown]
        assert [line for line in lines if " ".join(line.split()) not in printed] == []


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_a_script_of_another_library_prints_the_same(example, tmp_path):
    assert f"`examples/exact_resume/{example.name}`" in PAGE
    printed = words_printed(example.read_text("utf-8"), tmp_path)
    shown = [line for line in BLOCK.findall(PAGE)[0][1].splitlines() if "going on" not in line]
    assert [
        line for line in [*shown, "truestep: going on from step 20 of runs/stopped"] if line not in printed
    ] == []


def test_each_other_library_has_its_script():
    assert len(EXAMPLES) == 2


def test_sums_that_are_registered_hold_the_whole_epoch(tmp_path):
    example = REPOSITORY / "examples" / "exact_resume" / "sums.py"
    assert f"`examples/exact_resume/{example.name}`" in PAGE
    shown = PAGE.partition("after the save of step 25, and prints:\n\n```text\n")[2].partition("```")[0]
    assert shown.count("\n") == 4
    printed = words_printed(example.read_text("utf-8"), tmp_path)
    assert [line for line in shown.splitlines() if line not in printed] == []
