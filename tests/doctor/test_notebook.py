# SPDX-License-Identifier: Apache-2.0
"""A notebook is read as its code cells one after another; findings name cell and line."""

import ast
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import warm

from truestep.core.errors import OptionError
from truestep.doctor.catalogue import checks
from truestep.doctor.finding import Place
from truestep.doctor.linting import read_paths
from truestep.doctor.notebook import parse_notebook
from truestep.doctor.page import PRELUDE
from truestep.doctor.replacement import apply_source_edits
from truestep.doctor.runtime.script import WatchedScript
from truestep.doctor.runtime.script_runner import run_watched
from truestep.doctor.runtime.watch import Watch, WatchOptions

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


def test_no_launcher_starts_a_notebook(tmp_path):
    text = "import argparse\nimport torch\nparser = argparse.ArgumentParser()\nparser.add_argument('--local_rank', default=0)\n"
    text += "torch.cuda.set_device(parser.parse_args().local_rank)\n"
    assert [each.code for each in read_paths([notebook(tmp_path, ("code", text))]).findings] == []
    script = tmp_path / "train.py"
    script.write_text(text)
    assert [each.code for each in read_paths([script]).findings] == ["DIST004"]


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


def test_the_lines_that_a_message_names_are_those_of_their_cells(tmp_path):
    path = notebook(
        tmp_path,
        ("code", "import torch\nimport torch.nn.functional as F\nnet = torch.nn.Linear(4, 3)"),
        ("code", "scores = net(torch.randn(8, 4))\nscores = scores.softmax(1)"),
        ("code", "F.cross_entropy(scores, torch.zeros(8).long()).backward()"),
    )
    finding = next(each for each in read_paths([path]).findings if each.code == "LOSS001")
    assert finding.message.startswith(
        "The input of cross entropy is the result of softmax at train.ipynb:2:2:"
    )
    assert finding.evidence["made_at"] == f"{path}:2:2"


def _cells_of(text):
    tree = ast.parse(text)
    return [("code", ast.get_source_segment(text, each)) for each in tree.body]


@pytest.mark.parametrize("code", ["GRAD012", "PARAM005", "DATA013", "DEV001"])
def test_a_line_that_a_message_names_is_there(tmp_path, code):
    cells = _cells_of(PRELUDE + checks()[code].page().bad)
    told = [each.message for each in read_paths([notebook(tmp_path, *cells)]).findings]
    named = [found for text in told for found in re.findall(r"line (\d+)(?: of cell (\d+))?", text)]
    assert named
    for line, cell in named:
        assert int(line) <= len(cells[int(cell) - 1][1].splitlines())


FIRST = """\
from __future__ import annotations
%matplotlib inline
import torch
import torch.nn.functional as F
"""
MODEL = """\
net: unknown = torch.nn.Linear(4, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
display(type(net))
"""
LOOP = """\
def made(x):
    return net(x).softmax(1)

for _ in range(3):
    opt.zero_grad()
    F.cross_entropy(made(torch.randn(8, 4)), torch.randint(3, (8,))).backward()
    opt.step()
"""
RUN = (("markdown", "# Title"), ("code", FIRST), ("code", MODEL), ("code", LOOP))


def run_doctor(path, *options):
    ran = warm.run("-m", "truestep", "doctor", "--json", *options, path.name, cwd=path.parent)
    return ran.returncode, ran.stdout, ran.stderr


def test_the_doctor_runs_the_cells_of_a_notebook(tmp_path):
    status, printed, said = run_doctor(notebook(tmp_path, *RUN))
    [finding] = json.loads(printed)["findings"]
    assert (finding["code"], finding["cell"], finding["line"], finding["seen"]) == (
        "LOSS001",
        4,
        6,
        "read and ran",
    )
    assert finding["evidence"]["made_at"].endswith("train.ipynb:4:2")
    assert "<class 'torch.nn.modules.linear.Linear'>" in said
    assert status == 1


def test_a_comment_in_a_cell_hides_a_finding_and_an_error_is_shown_with_its_place(tmp_path):
    hidden = LOOP.replace(".backward()", ".backward()  # truestep: ignore")
    path = notebook(tmp_path, *RUN[:3], ("code", hidden), ("code", "x = 1\nraise ValueError('no such data')"))
    status, printed, said = run_doctor(path)
    assert f'File "{path}:5", line 2' in said
    assert "raise ValueError('no such data')" in said
    document = json.loads(printed)
    script = document["script"]
    assert (document["findings"], status, script["error_cell"], script["error_line"]) == ([], 1, 5, 2)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", r"can't be run: it is no JSON from line 1 on .* save it again.*rename it to \.py"),
        ("", r"it is no JSON from line 1 on"),
        ('{"cells": [\n{', r"it is no JSON from line 2 on"),
        ("import torch", r"it is no JSON .*rename it to \.py"),
        ("[]", r"no cells: not a notebook of format 4.*save it again"),
        (None, "Cell 2 .* can't be run"),
    ],
)
def test_a_notebook_that_can_not_be_run_is_refused_before_it_begins(tmp_path, capsys, text, why):
    path = notebook(tmp_path, ("code", "print('begun')"), ("code", "for x in"))
    if text is not None:
        path.write_text(text)
    script = WatchedScript(str(path), is_module=False, arguments=())
    with pytest.raises(OptionError, match=why):
        run_watched(script, Watch(WatchOptions()), lambda outcome: outcome.status)
    assert "begun" not in capsys.readouterr().out


@given(
    path=st.sampled_from(["a/b.py", "n.ipynb", "/a:1/b.ipynb", "x.ipynb:3.py"]),
    line=st.integers(1, 99),
    cell=st.integers(0, 9),
)
def test_a_place_is_read_back_as_it_was_written(path, line, cell):
    place = Place(path, line, cell=cell if path.endswith(".ipynb") else 0)
    assert Place.of_text(str(place)) == place


@pytest.mark.parametrize("text", ["", "a.py", "a.py:", ":3"])
def test_what_is_no_place_is_none(text):
    assert Place.of_text(text) is None
