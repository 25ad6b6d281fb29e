# SPDX-License-Identifier: Apache-2.0
"""What happens to a run's directory while it trains: a full disk, files that are removed, a clock that goes back."""

import os
import resource
import shutil
import signal
import time
from contextlib import contextmanager

import pytest
import torch
from torch import nn

import truestep as ts
from truestep.report.metrics import read_metrics


def train(directory, disturb=lambda run: None, *, width=1, background=False):
    saving = ts.Saving(every_steps=1, background=background)
    run = ts.Run(directory, progress=False, quiet=True, doctor=False, log_every=1, saving=saving)
    torch.manual_seed(0)
    net = run.learner(nn.Linear(64, width), lambda p: torch.optim.SGD(p, lr=0.1))
    data = run.data(torch.ones(16, 64), batch_size=4)
    with run:
        for _ in run.epochs(2):
            for rows in run.batches(data):
                net.update(lambda rows: net(rows).square().mean(1), rows)
                disturb(run)
    lines = [line.step for line in read_metrics(directory / "metrics.jsonl")]
    return net.weight.detach().clone(), lines


@contextmanager
def largest_file(size):
    """Let no file grow beyond a size, as on a disk that is full: what is written is refused."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.parametrize("background", [True, False])
def test_a_run_that_met_a_full_disk_goes_on_when_there_is_room(tmp_path, background):
    whole = train(tmp_path / "whole", width=64)

    def fill(run):
        if run.step == 3:
            resource.setrlimit(resource.RLIMIT_FSIZE, (12_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))

    with pytest.raises(ts.CheckpointError, match="could not be written") as raised, largest_file(-1):
        train(tmp_path / "run", fill, width=64, background=background)
    assert "What was saved before is untouched" in str(raised.value)
    weights, lines = train(tmp_path / "run", width=64)
    assert torch.equal(weights, whole[0])
    assert lines == whole[1]


def test_metrics_that_are_removed_while_a_run_trains_are_made_again(tmp_path, logged):
    whole = train(tmp_path / "whole")[1]

    def remove(run):
        if run.step == 3:
            (run.directory / "metrics.jsonl").unlink()

    assert train(tmp_path / "run", remove)[1] == whole
    assert any("metrics.jsonl was removed while the run trained" in each for each in logged.messages)


def rewritten(path, text):
    """Replace a file as editors and `sed -i` do: by another of its name."""
    other = path.with_suffix(".new")
    other.write_bytes(text)
    other.replace(path)


def added(path, text):
    with path.open("a") as file:
        file.write(text)


CHANGES = {
    "emptied, as by a log rotation": lambda path: os.truncate(path, 0),
    "cut in the middle of a line": lambda path: os.truncate(path, path.stat().st_size - 7),
    "written to": lambda path: added(path, "a remark of mine\n"),
    "half a line more": lambda path: added(path, "half"),
    "replaced by its own text": lambda path: rewritten(path, path.read_bytes()),
    "replaced by less": lambda path: rewritten(path, b"".join(path.read_bytes().splitlines(True)[1:])),
    "replaced by nothing": lambda path: rewritten(path, b""),
}


@pytest.mark.sliced(4)
@pytest.mark.parametrize("background", [True, False])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_metrics_that_are_changed_while_a_run_trains_go_on_whole_and_it_is_said(
    tmp_path, logged, change, background
):
    path, whole = tmp_path / "run" / "metrics.jsonl", train(tmp_path / "whole")

    def disturb(run):
        if run.step == 4:
            before = path.stat().st_size
            change(path)
            disturbed.append(path.stat().st_size != before)

    disturbed = []
    weights, steps = train(tmp_path / "run", disturb, background=background)
    text = path.read_bytes()
    assert torch.equal(weights, whole[0])
    assert b"\0" not in text
    assert steps == sorted(set(steps))
    assert steps[-4:] == whole[1][-4:]  # what was logged after it is there
    said = [each for each in logged.messages if "was changed by another program" in each]
    assert len(said) == disturbed[0]
    again, _ = train(tmp_path / "run")  # the marks of checkpoints fit what is there
    assert path.read_bytes() == text
    assert torch.equal(again, weights)


@pytest.mark.parametrize("step", [1, 3])
def test_a_directory_that_is_removed_while_a_run_trains_is_told_of(tmp_path, step):
    def remove(run):
        if run.step == step:
            shutil.rmtree(run.directory)

    with pytest.raises(
        ts.TruestepError, match=r"its folder is gone|the folder of this run, was removed or moved"
    ):
        train(tmp_path / "run", remove)


def test_a_clock_that_goes_backwards_changes_nothing(tmp_path, monkeypatch):
    whole = train(tmp_path / "whole")
    now = [2e9]

    def earlier():
        now[0] -= 3600
        return now[0]

    monkeypatch.setattr(time, "time", earlier)
    weights, lines = train(tmp_path / "run")
    assert torch.equal(weights, whole[0])
    assert lines == whole[1]
