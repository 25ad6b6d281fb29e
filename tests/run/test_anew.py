# SPDX-License-Identifier: Apache-2.0
"""Starting anew: numbered directories, a default one, and launchers that start a process again."""

import json
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

import truestep as ts
from truestep.run.directory import choose_run_directory

ROWS = torch.randn(8, 3, generator=torch.Generator().manual_seed(0))
LAUNCHERS = (
    "SLURM_JOB_ID",
    "SLURM_RESTART_COUNT",
    "SLURM_ARRAY_JOB_ID",
    "SLURM_ARRAY_TASK_ID",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
)


@pytest.fixture(autouse=True)
def launched(monkeypatch):
    """Return a function that says what a launcher says."""

    def say(**environment):
        for name in LAUNCHERS:
            monkeypatch.delenv(name, raising=False)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)

    say()
    return say


def train(directory, *, epochs=1, **options):
    with ts.Run(directory, progress=False, **options) as run:
        net = run.learner(nn.Linear(3, 1), lambda p: torch.optim.SGD(p, lr=0.1), name="net")
        data = run.data(ROWS, batch_size=4)
        for _ in run.epochs(epochs):
            for batch in run.batches(data):
                net.update(lambda rows: net(rows).squeeze(1).square(), batch)
    return run


def test_anew_takes_the_next_number_beside_what_is_there(tmp_path):
    base = tmp_path / "x"
    (tmp_path / "x-old").mkdir()
    (tmp_path / "xx-7").mkdir()
    made = [choose_run_directory(base, "anew").name for _ in range(3)]
    assert made == ["x", "x-2", "x-3"]
    (tmp_path / "x-9").mkdir()
    assert choose_run_directory(base, "anew").name == "x-10"
    assert choose_run_directory(base, "auto") == base


def test_processes_that_start_anew_at_once_get_a_directory_each(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: choose_run_directory(tmp_path / "x", "anew"), range(24)))
    assert len(set(made)) == 24


def test_a_run_that_is_started_anew_trains_from_the_beginning_and_leaves_the_old_one_alone(tmp_path, capsys):
    train(tmp_path / "x")
    train(tmp_path / "x")
    files = {path: path.read_bytes() for path in (tmp_path / "x").rglob("*") if path.is_file()}
    said = capsys.readouterr().err
    assert "the only epoch is done already; nothing is left to train" in said
    assert 'ts.Run(..., resume="anew") starts a new run beside' in said
    run = train(tmp_path / "x", resume="anew", config={"lr": 3})
    assert (run.directory.name, run.step) == ("x-2", 2)
    assert all(path.read_bytes() == content for path, content in files.items())


def test_without_a_directory_a_run_makes_one_named_after_the_script(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(tmp_path / "digits.py"), raising=False)
    names = []
    for _ in range(2):
        with ts.Run() as run:
            names.append(run.directory.relative_to(tmp_path).as_posix())
    assert names == ["runs/digits", "runs/digits-2"]
    for resume in ("must", "edited"):
        with pytest.raises(ts.OptionError, match="no directory says which"):
            ts.Run(resume=resume)


@pytest.mark.parametrize(
    ("first", "again", "other"),
    [
        (
            {"SLURM_JOB_ID": "17"},
            {"SLURM_JOB_ID": "17", "SLURM_RESTART_COUNT": "1"},
            {"SLURM_JOB_ID": "18", "SLURM_RESTART_COUNT": "1"},
        ),
        (
            {"TORCHELASTIC_RUN_ID": "abc", "TORCHELASTIC_RESTART_COUNT": "0"},
            {"TORCHELASTIC_RUN_ID": "abc", "TORCHELASTIC_RESTART_COUNT": "1"},
            {"TORCHELASTIC_RUN_ID": "def", "TORCHELASTIC_RESTART_COUNT": "1"},
        ),
        (
            {"SLURM_JOB_ID": "20", "SLURM_ARRAY_JOB_ID": "19", "SLURM_ARRAY_TASK_ID": "1"},
            {
                "SLURM_JOB_ID": "20",
                "SLURM_ARRAY_JOB_ID": "19",
                "SLURM_ARRAY_TASK_ID": "1",
                "SLURM_RESTART_COUNT": "2",
            },
            {
                "SLURM_JOB_ID": "20",
                "SLURM_ARRAY_JOB_ID": "19",
                "SLURM_ARRAY_TASK_ID": "2",
                "SLURM_RESTART_COUNT": "2",
            },
        ),
    ],
)
def test_a_process_that_its_launcher_starts_again_goes_on_in_the_directory_it_made(
    tmp_path, launched, first, again, other
):
    base = tmp_path / "x"
    train(base)
    launched(**first)
    assert train(base, resume="anew").directory.name == "x-2"
    assert train(base, resume="anew").directory.name == "x-3"  # the job's second training
    launched(**again)
    run = train(base, resume="anew", epochs=2)
    assert (run.directory.name, run.step) == ("x-2", 4)  # and not from the beginning
    assert train(base, resume="anew", epochs=2).directory.name == "x-3"
    assert train(base, resume="anew").directory.name == "x-4"  # which the first attempt had not come to
    launched(**other)
    assert train(base, resume="anew").directory.name == "x-5"


def test_what_was_launched_can_be_damaged_without_harm(tmp_path, launched):
    launched(SLURM_JOB_ID="1")
    made = [choose_run_directory(tmp_path / "x", "anew") for _ in range(4)]
    (made[0] / "launched.json").write_text("{")
    (made[1] / "launched.json").write_text(json.dumps({"job": "slurm:1", "attempts": 5}))
    (made[2] / "launched.json").unlink()
    launched(SLURM_JOB_ID="1", SLURM_RESTART_COUNT="1")
    assert choose_run_directory(tmp_path / "x", "anew") == made[3]


def test_a_run_that_was_finished_early_stays_so(tmp_path, capsys):
    def go(resume="auto", finish_at=None, how="finish"):
        with ts.Run(tmp_path / "x", resume=resume, progress=False) as run:
            net = run.learner(nn.Linear(3, 1), lambda p: torch.optim.SGD(p, lr=0.1))
            data, bodies = run.data(ROWS, batch_size=2), 0
            for _ in run.epochs(3):
                for batch in run.batches(data):
                    net.update(lambda rows: net(rows).squeeze(1).square(), batch)
                    bodies += 1
                    if run.step == finish_at:
                        run.finish()
                        if how == "break":
                            break
                if how == "break" and run.step == finish_at:
                    break
        return bodies, net.weight.clone()

    for how in ("finish", "break"):
        bodies, weight = go(finish_at=6, how=how, resume="anew" if how == "break" else "auto")
        assert bodies == 6
    capsys.readouterr()
    bodies, found = go()
    assert bodies == 0
    assert torch.equal(found, weight)
    said = capsys.readouterr().err
    assert "run.finish() ended this run at step 6; nothing is left to train" in said
    assert 'resume="edited") takes it up where it was ended' in said
    bodies, _ = go(resume="edited")
    assert bodies == 3 * len(ROWS) // 2 - 6


@pytest.mark.sliced(4)
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(
    "where", ["top", "first body", "a body", "left", "last body", "behind", "second pass", "the end"]
)
def test_a_run_that_was_finished_is_taken_up_where_it_was_ended(tmp_path, where, known):
    def go(where=None, resume="auto"):
        run = ts.Run(tmp_path / "run", resume=resume, quiet=True, progress=False, doctor=False)
        net = run.learner(nn.Linear(3, 1), lambda p: torch.optim.SGD(p, lr=0.1))
        data = run.data(ROWS if known else lambda: iter(ROWS), batch_size=2)
        given = []

        def at(place):
            if run.epoch == 1 and place == where:
                run.finish()

        for epoch in run.epochs(3):
            at("top")
            for number in range(2):
                for rows in run.batches(data):
                    net.update(lambda rows: net(rows).squeeze(1).square(), rows)
                    given.append((epoch, number, rows))
                    at(
                        ("first body", "a body", "last body")[min(len(given) % 8 - 1, 2)]
                        if not number
                        else ""
                    )
                    at("second pass" if number and len(given) % 8 == 6 else "")
                    at("left" if not number and len(given) % 8 == 2 else "")
                    if run.cursor.finished and where == "left":
                        break
                at("behind" if not number else "")
            at("the end")
        run.close()
        return given

    whole = [(epoch, number) for epoch in range(3) for number in range(2) for _ in range(4)]
    first = go(where)
    assert go() == []
    rest = go(resume="edited")
    assert [(epoch, number) for epoch, number, _ in first + rest] == whole
    assert all(
        torch.equal(rows, ROWS[2 * (i % 4) : 2 * (i % 4) + 2]) for i, (*_, rows) in enumerate(first + rest)
    )


def test_no_bar_still_says_what_matters_and_quiet_says_nothing(tmp_path, capsys):
    train(tmp_path / "x")
    capsys.readouterr()
    train(tmp_path / "x", epochs=2)
    said = capsys.readouterr().err
    assert "the rest is bit-identical" in said
    assert "epoch" not in said.replace("1 epoch done)", "")  # no line of progress
    train(tmp_path / "x", epochs=3, quiet=True)
    train(tmp_path / "x", epochs=3, quiet=True)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("content", ["{", "[]"])
def test_a_config_that_is_broken_is_answered_with_ways_on_that_work(tmp_path, content):
    ts.Run(tmp_path / "run", quiet=True).close()
    config = tmp_path / "run" / "config.json"
    whole = config.read_text()
    config.write_text(content)
    with pytest.raises(ts.TruestepError, match=r"put back a copy of that file.*resume=\"anew\"") as caught:
        ts.Run(tmp_path / "run", quiet=True)
    assert str(caught.value).endswith(".")
    beside = ts.Run(tmp_path / "run", quiet=True, resume="anew")
    beside.close()
    assert beside.directory != tmp_path / "run"
    assert config.read_text() == content
    config.write_text(whole)
    ts.Run(tmp_path / "run", quiet=True).close()
