# SPDX-License-Identifier: Apache-2.0
"""The report in a narrow terminal: places stay whole, reasons hang under one another, fixes are diffs."""

import io

from rich.console import Console

from truestep.doctor.read import read_text
from truestep.doctor.reporting.terminal import show_reading

TEXT = """\
import torch
import torch.nn.functional as F
net = torch.nn.Linear(3, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in loader:
    F.cross_entropy(net(x).softmax(1), y).backward()
    opt.step()
"""


def shown(path, width=80):
    reading = read_text(TEXT, path)
    reading.lines = {each.place: TEXT.splitlines()[each.place.line - 1] for each in reading.findings}
    console = Console(file=io.StringIO(), width=width, highlight=False)
    show_reading(reading, console)
    return console.file.getvalue().splitlines()


def test_a_long_path_has_its_line_and_is_not_broken():
    path = "a_folder_with_a_long_name/" * 2 + "train_the_model.py"
    assert f"{path}:6" in [line.strip() for line in shown(path)]


def test_everything_else_fits_the_width():
    assert max(map(len, shown("train.py"))) <= 80


def test_a_fix_is_shown_as_a_diff():
    lines = [line.strip() for line in shown("train.py")]
    assert "- F.cross_entropy(net(x).softmax(1), y).backward()" in lines
    assert "+ F.cross_entropy(net(x), y).backward()" in lines
    assert "+ opt.zero_grad()" in lines
