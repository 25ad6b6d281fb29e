# SPDX-License-Identifier: Apache-2.0
"""A notebook is read as its code cells one after another; findings name cell and line."""

import json
from pathlib import Path

import pytest

from truestep.doctor.notebook import parse_notebook
from truestep.doctor.read import read_paths
from truestep.doctor.replacement import apply_source_edits

SETUP = """\
%matplotlib inline
!pip install torch
import torch
import torch.nn.functional as F
files = !ls
net = torch.nn.Linear(4, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
"""
TRAINING = """\
%%time
for x, y in loader:
    F.cross_entropy(net(x), y).backward()
    if verbose:
        %debug
    opt.step()
"""


def notebook(folder, *cells, name="train.ipynb", **metadata):
    made = [
        {"cell_type": kind, "metadata": {}, "source": text.splitlines(keepends=True)} for kind, text in cells
    ]
    document = {"nbformat": 4, "nbformat_minor": 5, "metadata": metadata, "cells": made}
    path = Path(folder) / name
    path.write_text(json.dumps(document), "utf-8")
    return path


def test_a_finding_names_the_cell_and_the_line_in_it(tmp_path):
    path = notebook(tmp_path, ("markdown", "# Title"), ("code", SETUP), ("code", TRAINING))
    reading = read_paths([path])
    assert reading.unreadable == []
    assert [(each.code, each.place.cell, each.place.line) for each in reading.findings] == [("GRAD001", 3, 6)]
    assert str(reading.findings[0].place) == f"{path}:3:6"
    assert reading.findings[0].to_dict()["cell"] == 3
    assert reading.lines[reading.findings[0].place] == "    opt.step()"


def test_the_edits_of_a_fix_count_within_the_cell(tmp_path):
    path = notebook(tmp_path, ("code", SETUP), ("code", TRAINING))
    change = read_paths([path]).findings[0].replacement
    assert apply_source_edits(TRAINING, change.edits) == TRAINING.replace(
        "    opt.step()", "    opt.step()\n    opt.zero_grad()"
    )


def test_a_change_is_shown_with_the_lines_of_its_own_cell(tmp_path):
    path = notebook(tmp_path, ("code", SETUP), ("code", TRAINING), ("code", "net(x)"))
    change = read_paths([path]).findings[0].replacement
    assert change.diff == ("      opt.step()", "+     opt.zero_grad()")


def test_cells_of_another_language_are_passed_over(tmp_path):
    path = notebook(tmp_path, ("code", "%%bash\nfor x in y; do"), ("code", SETUP))
    assert read_paths([path]).unreadable == []
    assert parse_notebook(path.read_text("utf-8")).starts == (1, 3)


def test_a_folder_s_notebooks_are_read_but_not_their_backups(tmp_path):
    notebook(tmp_path, ("code", SETUP), ("code", TRAINING))
    (tmp_path / ".ipynb_checkpoints").mkdir()
    notebook(tmp_path / ".ipynb_checkpoints", ("code", SETUP), ("code", TRAINING))
    assert read_paths([tmp_path]).num_files == 1


@pytest.mark.parametrize("text", ["torch", "[1, 2]", '{"torch": 1}'])
def test_what_is_no_notebook_is_named_and_not_read(tmp_path, text):
    path = tmp_path / "broken.ipynb"
    path.write_text(text if "torch" in text else text + " " * 3 + "torch", "utf-8")
    assert [each for each, _ in read_paths([path]).unreadable] == [str(path)]


def test_a_notebook_of_another_language_is_not_read(tmp_path):
    path = notebook(tmp_path, ("code", "using torch"), kernelspec={"language": "julia"})
    assert "julia" in read_paths([path]).unreadable[0][1]


@pytest.mark.parametrize(
    "text",
    [
        '{"cells": [1, null, {"cell_type": "code"}, {"cell_type": "code", "source": null}], "metadata": null}',
        '{"cells": [{"cell_type": "code", "source": "import torch"}], "metadata": {"kernelspec": null}}',
        '{"cells": [{"cell_type": "code", "source": [1, 2]}], "metadata": {"kernelspec": "torch"}}',
    ],
)
def test_what_a_notebook_lacks_does_not_stop_the_reading(tmp_path, text):
    path = tmp_path / "odd.ipynb"
    path.write_text(text)
    reading = read_paths([path])
    assert (reading.findings, reading.failures, reading.unreadable) == ([], [], [])


def test_a_cell_that_is_no_python_is_named_and_the_others_are_read(tmp_path):
    path = notebook(
        tmp_path, ("code", SETUP), ("code", "torch, really great"), ("code", TRAINING), ("code", "x = (1")
    )
    reading = read_paths([path])
    assert [(each.code, each.place.cell, each.place.line) for each in reading.findings] == [("GRAD001", 3, 6)]
    assert [name for name, _ in reading.unreadable] == [f"{path}:2", f"{path}:4"]


def test_what_only_ipython_understands_is_passed_over(tmp_path):
    odd = "?torch\nnet?\nnet.forward??\n!pip install a \\\n  b\nfiles = !ls \\\n  -la\n%time loss = net(x)\n%timeit -o f()\n"
    path = notebook(tmp_path, ("code", SETUP), ("code", odd), ("code", TRAINING))
    reading = read_paths([path])
    assert reading.unreadable == []
    assert [each.code for each in reading.findings] == ["GRAD001"]


def test_a_byte_order_mark_and_another_language(tmp_path):
    path = notebook(tmp_path, ("code", SETUP), ("code", TRAINING))
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert [each.code for each in read_paths([path]).findings] == ["GRAD001"]
    other = notebook(tmp_path, ("code", "using torch"), name="j.ipynb", language_info={"name": "julia"})
    assert "julia" in read_paths([other]).unreadable[0][1]
