# SPDX-License-Identifier: Apache-2.0
"""Whatever happens to a file of a run, its user reads a plain message, or gets the same bits."""

import os

import pytest
import torch
from torch import nn
from torture import run_damage

import truestep as ts
from truestep.core.atomic_files import open_regular_file, read_regular_file


def check(folder, count, *, seed=0):
    verdicts = run_damage.torture(folder, count, seed)
    print(f"{verdicts.refused.total()} refused, {verdicts.went_on.total()} went on")
    assert verdicts.wrong == []
    assert verdicts.refused
    assert verdicts.went_on


def test_twelve_damages(tmp_path):
    check(tmp_path, 12)


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("seed", range(5))
def test_five_thousand_damages(tmp_path, seed):
    check(tmp_path, 1_000, seed=seed + 1)


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_WRONLY, os.O_RDWR | os.O_CREAT])
def test_only_regular_files_are_opened_and_nothing_waits(tmp_path, flags):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "file").write_text("text")
    for name, words in (("fifo", "no regular file"), ("link", "symbolic link"), (".", "directory")):
        with pytest.raises(OSError, match=words):
            open_regular_file(tmp_path / name, flags)
    os.close(open_regular_file(tmp_path / "file", flags))
    assert read_regular_file(tmp_path / "file") == b"text"


def test_the_directories_of_a_run_may_be_links(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "disk")
    (tmp_path / "large").mkdir()
    (tmp_path / "disk" / "checkpoints").symlink_to(tmp_path / "large")
    run_damage.go_on(tmp_path / "run", 1)
    assert list((tmp_path / "large").glob("0*"))
    assert run_damage.go_on(tmp_path / "run", 3) == run_damage.go_on(tmp_path / "whole", 3)


@pytest.mark.parametrize("name", ["\ud800", "\x1b[2J", "a\nb", ""])
def test_a_metric_whose_name_can_not_be_shown_is_refused(tmp_path, name):
    with ts.Run(tmp_path / "run", progress=False, doctor=False) as run:
        with pytest.raises(ts.OptionError, match=r"run\.log was given the name .*: such a name is shown"):
            run.log(**{name: 1.0})
        net = run.learner(nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.1))
        with pytest.raises(ts.OptionError, match=r"ts\.weighted was given the name"):
            net.update(
                lambda b: ts.weighted(net(b).squeeze(1), **{name: net(b).squeeze(1)}), torch.ones(4, 2)
            )
