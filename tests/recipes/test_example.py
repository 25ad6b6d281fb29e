# SPDX-License-Identifier: Apache-2.0
"""The recipe of the documentation runs as the documentation says."""

import json
import re
from pathlib import Path

from support import warm

PAGE = Path(__file__).parents[2] / "docs" / "recipes.md"


def truestep(*arguments, cwd):
    return warm.run("-m", "truestep", *arguments, cwd=cwd)


def test_the_documented_recipe_shows_its_options_and_learns(tmp_path):
    code = re.search(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)[1]
    (tmp_path / "spirals.py").write_text(code, "utf-8")
    shown = truestep("train", "spirals.py", "--help", cwd=tmp_path)
    assert "learning rate at its highest" in shown.stdout

    result = truestep("train", "spirals.py", "--epochs", "15", "--lr", "1e-2", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    report = tmp_path / result.stdout.strip().removeprefix("Report: ")
    assert report.parent.parent == tmp_path / "runs" / "spirals"
    last = json.loads((report.parent / "metrics.jsonl").read_text("utf-8").splitlines()[-1])
    assert last["values"]["accuracy"] > 0.9
