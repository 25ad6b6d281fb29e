# SPDX-License-Identifier: Apache-2.0
"""Units of files: one that is large is shared by processes, and nothing of one that was read stays."""

import gc
import os
import weakref

from hypothesis import given
from hypothesis import strategies as st

from truestep.doctor import processes, read
from truestep.doctor.processes import shares_of

FAULTY = """\
import torch
import torch.nn.functional as F
from torch import nn
from part_{other} import helper

net = nn.Linear(4, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in [(torch.randn(8, 4), torch.randint(3, (8,)))]:
    loss = F.cross_entropy(net(x).softmax(1), y)
    loss.backward()
    opt.step()


def helper():
    return net
"""
NUM_FILES = 6


def written(folder):
    for number in range(NUM_FILES):
        text = FAULTY.format(other=(number + 1) % NUM_FILES)
        (folder / f"part_{number}.py").write_text(text, "utf-8")
    return [folder]


def told(reading):
    return (
        [(each.code, each.place, each.message) for each in reading.findings],
        reading.num_files,
        reading.failures,
    )


def test_a_unit_that_is_shared_gives_what_it_gives_alone(tmp_path, monkeypatch):
    alone = told(read.read_paths(written(tmp_path)))
    asked = []
    monkeypatch.setattr(processes, "_WORTH_IT", 1)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(read, "shares_of", lambda sizes: asked.append(sizes) or shares_of(sizes))
    assert told(read.read_paths([tmp_path])) == alone
    assert [len(sizes) for sizes in asked] == [NUM_FILES]
    assert {code for code, *_ in alone[0]} >= {"GRAD001"}
    assert alone[1] == NUM_FILES


@given(st.lists(st.integers(0, 10_000), max_size=40))
def test_shares_hold_each_piece_once_and_in_order(sizes):
    shares = shares_of(sizes)
    assert [index for start, end in shares for index in range(start, end)] == list(range(len(sizes)))


def test_what_was_read_is_gone_without_the_collector(tmp_path, monkeypatch):
    held = []
    monkeypatch.setattr(read, "apply_checks", lambda module, *_: held.append(weakref.ref(module)))
    written(tmp_path)
    gc.disable()
    try:
        read.read_paths([tmp_path])
        assert len(held) == NUM_FILES
        assert [each() for each in held] == [None] * NUM_FILES
    finally:
        gc.enable()
