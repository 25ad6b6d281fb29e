# SPDX-License-Identifier: Apache-2.0
"""Scripts for an earlier Python are read: what this one refuses is rewritten for the reading alone."""

import pytest

from truestep.doctor.linting import read_paths, read_text
from truestep.doctor.replacement import rewrite_old_python

SCRIPT = """\
import torch
import torch.nn.functional as F

net = torch.nn.Linear(4, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in loader:
    x = x.cuda(async=True)
    loss = F.cross_entropy(net(x), y)
    loss.backward()
    opt.step()
    print "loss: %.3f" % loss.item(), "of", 10L
"""


def test_a_script_for_python_2_is_read_in_its_own_lines(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    reading = read_paths([path])
    assert reading.unreadable == []
    assert [(each.code, each.place.line) for each in reading.findings if each.code == "GRAD001"] == [
        ("GRAD001", 10)
    ]


@pytest.mark.parametrize(
    "line",
    [
        "print 'a', b",
        "print ('a'), b",
        "if b: print b",
        "try:\n    b\nexcept (OSError, ValueError), error:\n    pass",
        "raise ValueError, 'a'",
        "b = 0777",
        "b <> 1",
        "b = [x.cuda(async=True) for x in b]",
        "if b:\n\tb\n        b",
    ],
)
def test_each_of_its_statements_keeps_its_lines(line):
    assert read_text(line).unreadable == []
    assert rewrite_old_python(line).count("\n") == line.count("\n")


def test_what_is_no_python_at_all_is_still_refused():
    assert read_text("print 'a' 'b").unreadable


@pytest.mark.parametrize("line", ["", "torch"])
def test_names_that_nothing_binds_are_named_in_files_that_use_torch(tmp_path, line):
    path = tmp_path / "train.py"
    path.write_text(f"import {line or 'os'}\n\n\ndef loss_of(output):\n    return outputs.mean()\n")
    found = [(each.code, each.place.line) for each in read_paths([path]).findings]
    assert found == ([("VALUE041", 5)] if line else [])


def test_names_that_come_from_anywhere_are_not(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("import torch\nfrom tools import *\n\nprint(torch.ones(1), anything)\n")
    assert read_paths([path]).findings == []
