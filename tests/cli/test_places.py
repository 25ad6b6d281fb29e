# SPDX-License-Identifier: Apache-2.0
"""Places that are not what a command needs: one line, status 2, and nothing that names a thing as its own remedy."""

import json
import os
import re

import pytest
from support import warm

SCRIPT = "import torch\n\n\ndef make_model():\n    return torch.nn.Linear(4, 3)\n"
SCHEDULE = """
def make_schedule():
    opt = torch.optim.SGD(make_model().parameters(), lr=0.1)
    return torch.optim.lr_scheduler.ExponentialLR(opt, 0.9)
"""
WRITING = {
    "page": ["report", "run", "--out", "{}.html"],
    "csv": ["report", "run", "--csv", "{}.csv"],
    "doctor": ["doctor", "--report", "{}", "train.py"],
    "baseline": ["read", "train.py", "--write-baseline", "{}"],
    "schedule": ["schedule", "train.py:make_schedule", "--steps", "5", "--lr", "0.1", "--out", "{}.svg"],
    "graph": ["graph", "train.py:make_model", "--input", "1,4", "--out", "{}.json"],
    "export": ["export", "train.py:make_model", "{}.onnx", "--input", "1,4"],
}


@pytest.fixture
def here(tmp_path):
    """Return a folder with a script, a run, and folders whose names end as a file's."""
    (tmp_path / "train.py").write_text(SCRIPT + SCHEDULE)
    (tmp_path / "run").mkdir()
    line = {"step": 1, "epoch": 0, "elapsed_seconds": 0.1, "values": {"loss": 1.0}}
    (tmp_path / "run" / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    for name in ("folder", "folder.html", "folder.csv", "folder.svg", "folder.json", "folder.onnx"):
        (tmp_path / name).mkdir()
    return tmp_path


UNWRITABLE = [
    (command, place)
    for command in WRITING
    for place in ("missing/x", "folder", "train.py/x", "/proc/x")
    if (command, place) != ("export", "/proc/x")  # torch's exporter writes there, and its own error is told
]


@pytest.mark.parametrize(("command", "place"), UNWRITABLE)
def test_where_nothing_can_be_written_is_told_in_one_line(here, command, place):
    words = [word.format(place) for word in WRITING[command]]
    ran = warm.run("-m", "truestep", *words, cwd=here)
    assert "Traceback" not in ran.stderr, ran.stderr
    assert (ran.returncode, ran.stdout) == (2, "")
    last = ran.stderr.splitlines()[-1]
    assert last.startswith("truestep: ")
    assert place in last


@pytest.mark.parametrize("name", ["x.pdf", "x.png", "x.json"])
def test_a_page_is_html(here, name):
    ran = warm.run("-m", "truestep", "report", "run", "--out", name, cwd=here)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "--out x.html" in ran.stderr
    assert not (here / name).exists()


NO_FILES = [
    (command, place)
    for command in ("doctor", "launch", "train", "explain")
    for place in ("folder", "folder/", "with_code", "pipe")
    if (command, place) != ("explain", "pipe")  # it reads what is written there
]


@pytest.mark.parametrize(("command", "place"), NO_FILES)
def test_what_is_no_file_is_not_proposed_in_its_own_place(here, command, place):
    (here / "with_code").mkdir()
    (here / "with_code" / "__main__.py").write_text("")
    os.mkfifo(here / "pipe")
    ran = warm.run("-m", "truestep", command, place, cwd=here, timeout=60)
    assert ran.returncode == 2
    assert ran.stderr.count("\n") == 1
    assert not re.search(rf"Did you mean '{place.rstrip('/')}'", ran.stderr)
    if command != "train":
        what = "It is a pipe" if place == "pipe" else "It is a folder"
        assert what in ran.stderr


def test_a_log_comes_through_a_pipe_too(here):
    os.mkfifo(here / "log")
    explained = warm.Process("-m", "truestep", "explain", "log", cwd=here)
    (here / "log").write_text(
        "RuntimeError: CUDA error: no kernel image is available for execution on the device\n"
    )
    assert explained.wait(60) == 0
    assert "no kernel image" in explained.output


STEERING = "a\x1b[31m\x07b"
CALLS = [
    ["report", "{}"],
    ["report", "{}", "--csv", "{}/v.csv"],
    ["report", "{}/none"],
    ["runs", "{}/.."],
    ["checkpoints", "list", "{}"],
    ["read", "{}"],
    ["read", "{}", "--output", "concise"],
    ["read", "{}", "--output", "github"],
    ["doctor", "{}/theirs.py", "--steps", "2"],
    ["doctor", "{}/none.py"],
    ["explain", "{}/none.log"],
    ["train", "{}/none.py"],
    ["launch", "{}/none.py"],
    ["train", "recipe.py", "--out", "{}/made"],
]
RECIPE = """\
from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True)
class Config:
    lr: float = 0.1  # learning rate


def train(run, config):
    net = run.learner(nn.Linear(4, 1), lambda p: torch.optim.SGD(p, lr=config.lr))
    data = run.data(torch.ones(8, 4), batch_size=4)
    for _ in run.epochs(1):
        for rows in run.batches(data):
            net.update(lambda rows: net(rows).square().mean(1), rows)
    raise ValueError("mine")
"""
FAULTY = """\
import torch

net = torch.nn.Linear(4, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in [(torch.zeros(2, 4), torch.zeros(2).long())] * 3:
    torch.nn.functional.cross_entropy(net(x), y).backward()
    opt.step()
"""


@pytest.mark.parametrize("words", CALLS, ids=" ".join)
def test_no_name_steers_the_terminal(here, words):
    folder = here / STEERING
    (here / "run").rename(folder)
    (folder / "theirs.py").write_text(FAULTY)
    (folder / "bad.py").write_bytes(b"\xff(")
    (here / "recipe.py").write_text(RECIPE)
    ran = warm.run("-m", "truestep", *(word.format(STEERING) for word in words), cwd=here)
    printed = ran.stdout + ran.stderr.partition("Traceback")[0]
    assert printed
    assert "\x1b" not in printed
    assert "\x07" not in printed
