# SPDX-License-Identifier: Apache-2.0
"""Every script in examples/ runs, briefly, writes its report, and goes on when it is run again."""

import json
import runpy
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(find_spec("sklearn") is None, reason="needs scikit-learn")

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_example_trains_and_goes_on(path, tmp_path, capsys):
    directory = tmp_path / "run"
    main = runpy.run_path(str(path))["main"]
    first = main(str(directory), epochs=1)
    assert (directory / "report.html").stat().st_size > 1000
    assert main(str(directory), epochs=1) == first
    assert "nothing is left to train" in capsys.readouterr().err


def test_the_cells_of_the_notebook_run_and_the_doctor_finds_the_mistake(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    notebook = json.loads((Path(__file__).parents[1] / "examples/first_steps.ipynb").read_text("utf-8"))
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    names: dict = {"__name__": "__main__"}
    for number, cell in enumerate(cells[:-1]):
        exec(compile(cell, f"cell {number}", "exec"), names)
    assert eval(cells[-1], names) > 0.97
    assert [finding.code for finding in names["watch"].findings] == ["GRAD001"]
    assert all(
        cell.get("outputs", []) == [] for cell in notebook["cells"]
    )  # committed without what it prints
