# SPDX-License-Identifier: Apache-2.0
"""What the README shows is true today: the doctor's picture, the numbers, the accuracy."""

import json
import re
import runpy
import sys
import warnings
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from truestep.cli.read import app as read

REPOSITORY = Path(__file__).parents[2]
README = (REPOSITORY / "README.md").read_text("utf-8")


@pytest.fixture(scope="module", autouse=True)
def datasets():
    """Import them once, as they set environment variables."""
    pytest.importorskip("sklearn.datasets")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_the_doctors_picture_is_what_the_doctor_says_of_the_loop():
    script = runpy.run_path(str(REPOSITORY / "docs/make_readme_figure.py"))
    kept = (REPOSITORY / "docs/figures/three-mistakes.svg").read_text("utf-8")
    assert script["loop"]() == blocks(README, "python")[0]
    assert script["figure"]() == kept, "run: python docs/make_readme_figure.py"
    assert [code for code in ("LOSS001", "GRAD001", "MEM001") if code not in kept] == []
    assert "3&#160;bugs" in kept
    assert "http" not in kept.replace("http://www.w3.org/2000/svg", "")  # it loads nothing


def test_fix_makes_all_three_changes(tmp_path):
    (tmp_path / "train.py").write_text(blocks(README, "python")[0], "utf-8")
    fixed = CliRunner().invoke(read, ["--fix", "--no-cache", str(tmp_path / "train.py")])
    assert "Fixed 3 in 1 file" in fixed.output
    assert fixed.exit_code == 0  # nothing is left to find


def test_the_loop_with_three_mistakes_raises_nothing_and_warns_of_nothing(capsys):
    names: dict = {}
    exec(blocks(README, "python")[0], names)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        names["train"](torch.nn.Linear(3, 2), [(torch.randn(4, 3), torch.tensor([0, 1, 0, 1]))])
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_the_loop_of_the_run_ends_in_the_accuracy_that_it_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(blocks(README, "python")[1], "README.md", "exec"), {"__name__": "__main__"})
    lines = Path("runs/readme/metrics.jsonl").read_text("utf-8").splitlines()
    accuracies = [
        line["values"]["accuracy"] for line in map(json.loads, lines) if "accuracy" in line["values"]
    ]
    assert round(accuracies[-1], 2) >= float(re.search(r"# (0\.\d+) after ten epochs", README)[1])
    assert Path("runs/readme/report.html").exists()


@pytest.mark.filterwarnings("ignore:Converting a tensor")
def test_the_row_of_numbers_is_that_of_the_page_and_of_the_script(monkeypatch):
    (row,) = re.findall(r"^\| 0\.25 .*", README, re.MULTILINE)
    shown = re.findall(r"\d\.\d\d", row)
    page = (REPOSITORY / "docs/peers.md").read_text("utf-8")
    measured = re.findall(r"^\| [^|]+ \| 1\.00 \| ([^|]+) \|$", page, re.MULTILINE)
    assert [value.replace("no update", "0.00") for value in measured] == shown
    monkeypatch.setattr(
        "importlib.metadata.version", lambda name: torch.__version__ if name == "torch" else "0"
    )
    monkeypatch.syspath_prepend(REPOSITORY / "benchmarks/peers")
    try:
        script = runpy.run_path(str(REPOSITORY / "benchmarks/peers/short_window.py"))
        weights = script["truestep"]()
    finally:
        sys.modules.pop("table", None)
    assert (weights[1] - weights[2]) / script["RIGHT"][1] == pytest.approx(float(shown[-1]), rel=1e-5)


def test_it_is_short():
    lines = re.sub(r"^```python.*?^```", "", README, flags=re.MULTILINE | re.DOTALL).splitlines()
    assert len(lines) <= 60, "the README is to stay within two screens"


def test_the_index_shows_the_same_two_blocks():
    index = (REPOSITORY / "docs/index.md").read_text("utf-8")
    (start,) = re.findall(r"^:start-at: '(.*)'$", index, re.MULTILINE)
    first = next(line for line in README.splitlines() if start in line)
    assert blocks(README, "python")[1].startswith(first)
