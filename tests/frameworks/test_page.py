# SPDX-License-Identifier: Apache-2.0
"""The three scripts of the page on exact resume run as they stand there, and print what is shown below each."""

import re
from pathlib import Path

import pytest

import frameworks

pytestmark = pytest.mark.xdist_group("frameworks")  # one process that the others are forked from

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "lightning-and-trainer.md"
SCRIPT = re.compile(
    r"^<!--- run by \S+ -->\n```python\n(.*?)^```\n\nIt prints:\n\n```text\n(.*?)^```",
    re.MULTILINE | re.DOTALL,
)
SCRIPTS = SCRIPT.findall(PAGE.read_text("utf-8"))


def test_each_library_has_its_script():
    imported = [re.findall(r"lightning|transformers|accelerate", script)[0] for script, _ in SCRIPTS]
    assert imported == ["lightning", "transformers", "accelerate", "accelerate"]


@pytest.mark.parametrize("number", range(4))
def test_a_script_prints_what_the_page_shows(number, tmp_path):
    script, shown = SCRIPTS[number]
    (tmp_path / "train.py").write_text(script, "utf-8")
    done = frameworks.run("train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    printed = f"{done.stdout}{done.stderr}".replace(f"{tmp_path}/", "").splitlines()
    assert [line for line in shown.splitlines() if line not in printed] == []
