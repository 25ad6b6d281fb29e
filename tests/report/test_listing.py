# SPDX-License-Identifier: Apache-2.0
"""`truestep runs` says how each run stands, from its files alone, and touches none of them."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import truestep as ts
from truestep.checkpoints import CheckpointStore, Retention
from truestep.checkpoints.listing import select_checkpoint
from truestep.cli.main import app
from truestep.core import os_specific
from truestep.report import write_report
from truestep.report.listing import runs

REASONS = {
    "finished": ("finished", None),
    "signal 15": ("stopped", "by SIGTERM after step 10"),
    "signal 2": ("stopped", "by SIGINT after step 10"),
    "closed": ("stopped", "its script ended after step 10"),
    "exception RuntimeError": ("interrupted", "RuntimeError after step 10"),
    "epoch": ("interrupted", "it was killed; it goes on from step 10"),
    "periodic": ("interrupted", "it was killed; it goes on from step 10"),
}


@pytest.fixture
def make(tmp_path, log):
    """Return the function that makes a run's folder; it gives the open store back where it is to stay open."""

    def make(name, *, reason="finished", values=None, last=10, is_open=False):
        folder = log(
            tmp_path / name, [(step, 0, values or {"loss": 1 / step}) for step in range(1, last + 1)]
        )
        (folder / "config.json").write_text(json.dumps({"schema_version": 1, "seed": 0}))
        store = CheckpointStore(folder / "checkpoints")
        if reason:
            store.save(10, {"a": torch.ones(3)}, reason=reason)
            store.wait()
        if is_open:
            return store
        store.close()
        return folder

    return make


def only(tmp_path):
    (found,) = runs(tmp_path).runs
    return found


@pytest.mark.parametrize(("reason", "expected"), REASONS.items())
def test_the_newest_checkpoint_says_how_a_run_ended(make, tmp_path, reason, expected):
    make("run", reason=reason)
    assert (only(tmp_path).state, only(tmp_path).why) == expected


@pytest.mark.parametrize("reason", ["finished", "signal 15", "closed"])
def test_lines_after_the_end_tell_of_a_run_that_went_on_and_was_killed(make, tmp_path, reason):
    make("run", reason=reason, last=12)
    assert only(tmp_path).state == "interrupted"


@pytest.mark.parametrize(("updates", "state"), [(0, "finished"), (3, "stopped")])
def test_a_run_that_measures_alone_is_finished(tmp_path, log, updates, state):
    folder = log(tmp_path / "run", [(0, 0, {"accuracy": 0.5})])
    (folder / "config.json").write_text(json.dumps({"schema_version": 1, "seed": 0}))
    store = CheckpointStore(folder / "checkpoints")
    store.save(
        0, {"learners": {"net": {"counters": {"updates": updates}}}, "a": torch.ones(3)}, reason="closed"
    )
    store.wait()
    store.close()
    assert only(tmp_path).state == state


def test_without_a_checkpoint_it_was_interrupted(make, tmp_path):
    make("run", reason=None)
    assert (only(tmp_path).state, only(tmp_path).step) == ("interrupted", 10)


@pytest.mark.parametrize("table", ["the kernel's", "none"])
def test_a_run_is_running_as_long_as_its_lock_is_held(make, tmp_path, monkeypatch, table):
    if table == "none":
        monkeypatch.setattr(os_specific, "LOCKS", tmp_path / "nothing")
    elif not os_specific.LOCKS.exists():
        pytest.skip("this kernel lists no locks")
    store = make("run", is_open=True)
    assert only(tmp_path).state == "running"
    store.close()
    if table != "none":  # without the table only the end of the process tells
        assert only(tmp_path).state == "finished"


def test_the_lock_of_a_process_that_is_gone_holds_nothing(make, tmp_path, monkeypatch):
    monkeypatch.setattr(os_specific, "LOCKS", tmp_path / "nothing")
    folder = make("run")
    ended = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], check=True, capture_output=True, text=True
    )
    host = socket.gethostname()
    (folder / "checkpoints/.lock").write_text(f"process {ended.stdout.strip()} on {host} (train.py)\n")
    assert only(tmp_path).state == "finished"


def test_of_another_machine_only_what_is_sure_is_said(make, tmp_path):
    for reason in ("finished", "epoch"):
        folder = make(reason, reason=reason)
        (folder / "checkpoints/.lock").write_text("process 1 on a-machine-that-is-not-this-one (train.py)\n")
    states = {Path(run.directory).name: run.state for run in runs(tmp_path).runs}
    assert states == {"finished": "finished", "epoch": "unknown"}


@pytest.mark.parametrize("damage", ["config", "manifest", "tensors"])
def test_damage_is_named(make, tmp_path, damage):
    folder = make("run")
    checkpoint = next((folder / "checkpoints").glob("0*"))
    if damage == "config":
        (folder / "config.json").write_text("{")
    elif damage == "manifest":
        (checkpoint / "manifest.json").write_bytes(b"{}")
    else:
        for path in checkpoint.glob("*.safetensors"):
            path.unlink()
    assert only(tmp_path).state == "damaged"
    assert only(tmp_path).why


def test_the_best_run_of_a_metric_comes_first_and_its_way_is_known(make, tmp_path):
    for name, score in (("a", 0.5), ("b", 0.9), ("c", 0.7)):
        make(name, values={"accuracy": score, "test_loss": score, "loss": 0.1})
    make("without")
    names = [Path(run.directory).name for run in runs(tmp_path, best="accuracy").runs]
    assert names == ["b", "c", "a", "without"]
    assert Path(runs(tmp_path, best="test_loss").runs[0].directory).name == "a"
    assert {run.metric for run in runs(tmp_path).runs} == {"accuracy", "loss"}


def test_nothing_is_changed_and_the_screen_holds_no_control_codes(make, tmp_path):
    folder = make("a\x1b[31m\nname")
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in folder.rglob("*")}
    printed = CliRunner().invoke(app, ["runs", str(tmp_path)])
    assert {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in folder.rglob("*")} == before
    assert "\x1b" not in printed.stdout
    assert printed.exit_code == 0
    document = json.loads(CliRunner().invoke(app, ["runs", str(tmp_path), "--json"]).stdout)
    assert document["schema_version"] == 1
    assert document["runs"][0]["state"] == "finished"


def test_a_report_that_is_made_later_does_not_make_a_run_newer(make, tmp_path):
    folder = make("run")
    before = only(tmp_path).changed_at
    write_report(folder)
    os.utime(folder / "report.html", (2e9, 2e9))
    assert only(tmp_path).changed_at == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing-here"], "truestep train digits"),
        (["rn"], "Did you mean 'run'"),
        ([".", "--best", "accurcy"], "Did you mean 'accuracy'?"),
    ],
)
def test_what_is_not_there_is_said(make, tmp_path, monkeypatch, arguments, said):
    make("run", values={"accuracy": 0.5})
    monkeypatch.chdir(tmp_path)
    printed = CliRunner().invoke(app, ["runs", *arguments])
    assert said in str(printed.exception)


def test_an_empty_folder_says_what_makes_a_run(tmp_path):
    assert "ts.Run(...)" in CliRunner().invoke(app, ["runs", str(tmp_path)]).stdout


def test_of_equal_best_values_the_one_is_named_whose_checkpoint_is_kept(tmp_path, log):
    accuracies = {8: 0.5, 16: 1.0, 24: 1.0, 32: 0.75}
    folder = log(tmp_path / "run", [(step, 0, {"accuracy": value}) for step, value in accuracies.items()])
    retention = Retention(last=1, best=1, best_metric="accuracy")
    with CheckpointStore(folder / "checkpoints", retention=retention) as store:
        for step, value in accuracies.items():
            store.save(step, {"a": torch.ones(3)}, metrics={"accuracy": value})
            store.wait()
    assert only(tmp_path).best_step == select_checkpoint(folder, "highest accuracy").step == 16


def test_where_a_script_ended_the_table_says_all_of_it(make, tmp_path):
    for number in range(3):
        make(f"ended-{number}", reason="closed")
    make("killed", reason="epoch")
    printed = CliRunner().invoke(app, ["runs", str(tmp_path)]).stdout
    assert "script ended" not in printed
    assert "it was killed" in printed


def test_updates_are_counted_where_no_batch_was(tmp_path):
    run = ts.Run(tmp_path / "run", progress=False, quiet=True)
    net = run.learner(torch.nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.1))
    for _ in range(3):
        net.update(lambda rows: net(rows).squeeze(1).square(), torch.ones(4, 2))
    run.close()
    assert "made 3 updates" in only(tmp_path).why
    assert "made 3 updates" in " ".join(CliRunner().invoke(app, ["runs", str(tmp_path)]).stdout.split())


def test_a_run_is_judged_by_what_it_saves_its_best_by(tmp_path):
    for name, saving in (
        ("told", ts.Saving(best="held_out", best_mode="max")),
        ("lowest", ts.Saving(best="score", best_mode="min")),
    ):
        with ts.Run(tmp_path / name, progress=False, quiet=True, saving=saving, log_every=1) as run:
            for value in (0.5, 0.2, 0.9):
                run.log(accuracy=1 - value, score=value, held_out=value)
        ts.Run(tmp_path / name, progress=False, quiet=True).close()  # without it the run goes on all the same
    found = {Path(each.directory).name: each for each in ts.runs(tmp_path).runs}
    assert (found["lowest"].metric, found["lowest"].best_value) == ("score", 0.2)
    assert found["told"].metric == "accuracy"  # nothing tells that `held_out` has a best value
