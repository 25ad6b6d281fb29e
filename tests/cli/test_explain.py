# SPDX-License-Identifier: Apache-2.0
"""`truestep explain`, `truestep errors`, and the notes under `truestep doctor` and `truestep train`, as processes."""

import json
import os
import subprocess
import sys

import pytest
from support import warm
from typer.testing import CliRunner

from truestep.cli.errors import app as errors_app
from truestep.cli.explain import app as explain_app
from truestep.core.errors import OptionError

MESSAGE = "RuntimeError: mat1 and mat2 shapes cannot be multiplied (64x400 and 320x50)"
FAILING = """\
import torch
from torch import nn

net = nn.Linear(20, 5)
net(torch.zeros(4, 10))
"""
RECIPE = """\
from dataclasses import dataclass
import torch
from torch import nn

@dataclass
class Config:
    width: int = 10

def train(run, config):
    nn.Linear(20, 5)(torch.zeros(4, config.width))
"""


def truestep(*arguments, cwd, text=""):
    surroundings = {**os.environ, "PYTHONPATH": warm.paths(), "NO_COLOR": "1"}
    return warm.run("-m", "truestep", *arguments, cwd=cwd, env=surroundings, input=text)


def call(app, *arguments):
    return CliRunner().invoke(app, list(arguments))


def test_a_message_is_explained():
    ran = call(explain_app, MESSAGE)
    assert ran.exit_code == 0
    assert "truestep explains: matrix-sizes-differ" in ran.stdout
    assert "400 features where 320 are expected" in ran.stdout


def test_a_file_and_what_is_piped_in_are_explained(tmp_path):
    log = tmp_path / "train.log"
    log.write_text(f"epoch 1\n{MESSAGE}\n")
    assert "line 2 of" in call(explain_app, str(log)).stdout
    assert "matrix-sizes-differ" in truestep("explain", "-", cwd=tmp_path, text=log.read_text()).stdout


def test_json_is_one_document():
    document = json.loads(call(explain_app, MESSAGE, "--json").stdout)
    assert document["schema_version"] == 1
    assert document["errors"][0]["explanation"]["name"] == "matrix-sizes-differ"


def test_an_unknown_error_says_so_with_the_nearest_and_status_1():
    ran = call(explain_app, "ValueError: the kernel of this convolution has too many channels for its groups")
    assert ran.exit_code == 1
    assert "This error is not known." in ran.stdout
    assert "convolution-channels-differ" in ran.stdout


def test_a_log_without_an_error_says_so(tmp_path):
    log = tmp_path / "fine.log"
    log.write_text("epoch 1\n" * 100)
    ran = call(explain_app, str(log))
    assert (ran.exit_code, ran.stdout) == (1, "There is no error in these 100 lines.\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("epoch 1 loss 0.5\nepoch 2 loss 0.4\n", "There is no error in these 2 lines."),
        ("def f(x):\n    return x\n", "There is no error in these 2 lines."),
        ("a note to myself", "There is no error in this line."),
        ("CUDA went away: cannot go on", "This error is not known."),
        ("the worker failed", "This error is not known."),
        ("ValueError: nobody knows this one", "This error is not known."),
    ],
)
def test_a_short_file_is_no_message(text, said, tmp_path):
    (tmp_path / "notes.txt").write_text(text)
    ran = call(explain_app, str(tmp_path / "notes.txt"))
    assert ran.exit_code == 1
    assert said in ran.stdout


def test_what_stands_on_the_command_line_is_a_message():
    assert "This error is not known." in call(explain_app, "a note to myself").stdout


def test_a_file_that_is_not_there_is_no_message():
    with pytest.raises(OptionError, match=r"no file 'gone\.log'"):
        CliRunner().invoke(explain_app, ["gone.log"], catch_exceptions=False)


def test_errors_are_listed_and_each_has_its_page():
    assert "matrix-sizes-differ" in call(errors_app).stdout
    page = call(errors_app, "matrix-sizes-differ").stdout
    assert "Raises:" in page
    assert "nn.Linear(20, 5)" in page
    document = json.loads(call(errors_app, "--json").stdout)
    assert {each["name"] for each in document["errors"]} > {"two-devices", "worker-died"}
    with pytest.raises(OptionError, match="Did you mean 'two-devices'"):
        CliRunner().invoke(errors_app, ["two-device"], catch_exceptions=False)


def test_the_doctor_shows_the_note_under_the_traceback(tmp_path):
    (tmp_path / "train.py").write_text(FAILING)
    ran = truestep("doctor", "train.py", cwd=tmp_path)
    assert ran.returncode == 1
    message, note = (
        ran.stderr.index("RuntimeError: mat1"),
        ran.stderr.index("truestep explains: matrix-sizes-differ"),
    )
    assert message < note
    assert "(made at train.py:4)" in " ".join(ran.stderr.split())


def test_train_shows_the_note_under_the_traceback(tmp_path):
    (tmp_path / "recipe.py").write_text(RECIPE)
    ran = truestep("train", "recipe.py", "--out", "run", cwd=tmp_path)
    assert ran.returncode == 1
    assert "truestep explains: matrix-sizes-differ" in ran.stderr
    assert "in train: nn.Linear(20, 5)(torch.zeros(4, config.width))" in ran.stderr


@pytest.mark.parametrize("arguments", [["explain", MESSAGE], ["errors"]])
def test_they_start_without_torch(arguments, tmp_path):
    (tmp_path / "torch.py").write_text("raise SystemExit('torch was imported')\n")
    command = [sys.executable, "-m", "truestep", *arguments]
    environment = {**os.environ, "PYTHONPATH": warm.paths()}
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=False)
    assert ended.returncode == 0
