# SPDX-License-Identifier: Apache-2.0
"""An address is taken where a directory is: weights, whole states, lists, pages; of a run at work, and of what is damaged."""

import json
import threading
import time
import warnings
from pathlib import Path

import pytest
import torch
from support.mirrors import mirror_of, requests_of, save, sent
from torch import nn
from typer.testing import CliRunner

import truestep as ts
from truestep.checkpoints.state_diff import compare_states
from truestep.cli import checkpoints as checkpoints_command
from truestep.cli import report as report_command
from truestep.cli import runs as runs_command
from truestep.core.errors import CheckpointError, MissingPackageError, OptionError, RunDirectoryError
from truestep.mirror import mirror as mirror_module
from truestep.mirror import reading


@pytest.fixture(autouse=True, scope="module")
def looks_often():
    kept, mirror_module.LOOK_SECONDS = mirror_module.LOOK_SECONDS, 0.02
    yield
    mirror_module.LOOK_SECONDS = kept


def trained(directory: Path, address: str, *, epochs: int = 3) -> nn.Module:
    """Train with a mirror, a checkpoint an epoch, each of them sent; return the weights."""
    run = ts.Run(
        directory,
        seed=0,
        quiet=True,
        progress=False,
        saving=ts.Saving(every_steps=2, keep_last=2, best="accuracy", background=False),
        mirror=address,
    )
    net = run.learner(nn.Linear(4, 3), torch.optim.Adam)
    data = run.data(torch.randn(8, 4, generator=torch.Generator().manual_seed(0)), batch_size=4)
    for epoch in run.epochs(epochs):
        for rows in run.batches(data):
            if epoch:
                sent(run._shared.mirrored._mirror, 2 * epoch)
            net.update(lambda rows: net(rows).square().mean(1), rows)
        run.log(accuracy=1.0 - epoch / 10)
    run.close()
    return net.module


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    store = (folder / "store").as_uri()
    kept = {name: trained(folder / "here" / name, f"{store}/{name}") for name in ("first", "a%20second")}
    return store, folder, kept


def ran(command, *words: str, status: int = 0):
    done = CliRunner().invoke(command.app, list(words))
    assert done.exit_code == status, (done.output, done.exception)
    return done.stdout


def test_an_address_is_read_where_a_directory_is(two_runs, tmp_path):
    store, folder, kept = two_runs
    address, directory, module = f"{store}/first", folder / "here" / "first", nn.Linear(4, 3)
    assert not ts.load_weights(module, address)
    assert torch.equal(module.weight, kept["first"].weight)
    ts.load_weights(module, Path(address), checkpoint="highest accuracy")
    best = ts.read_checkpoint(directory / "checkpoints" / "000001-step-2")
    assert torch.equal(module.weight, best["learners"]["linear"]["modules"]["weight"])
    assert not compare_states(ts.read_checkpoint(address), ts.read_checkpoint(directory)).changes
    for source in (address, directory):
        ts.export_weights(source, tmp_path / "w.safetensors")
        written = ts.read_checkpoint(tmp_path / "w.safetensors")
        assert torch.equal(written["weight"], kept["first"].weight)


def test_the_commands_take_addresses(two_runs, tmp_path, monkeypatch):
    store, folder, _ = two_runs
    monkeypatch.chdir(tmp_path)
    address, directory = f"{store}/first", str(folder / "here" / "first")
    listed = json.loads(ran(checkpoints_command, "list", address, "--json"))
    assert listed == json.loads(ran(checkpoints_command, "list", directory, "--json"))
    assert ran(checkpoints_command, "verify", address).count("sound") == 3
    assert "learners/linear/modules/weight  float32 [3, 4]" in ran(checkpoints_command, "show", address)
    same = json.loads(ran(checkpoints_command, "diff", address, directory, "--json"))
    assert (same["equal"], same["first"]) == (True, f"{address}/checkpoints/000003-step-6")
    assert ran(checkpoints_command, "export", address, "w.pt", "--which", "2").strip() == "w.pt"
    ran(report_command, store)
    assert "a second" in Path("comparison.html").read_text()
    ran(report_command, address)
    assert Path("report.html").exists()
    here = ts.runs(folder / "here", best="accuracy")
    there = ts.runs(store, best="accuracy")
    assert [run.directory for run in there.runs] == [f"{store}/a%20second", f"{store}/first"]
    for one, other in zip(there.runs, sorted(here.runs, key=lambda run: run.directory), strict=True):
        assert (one.state, one.step, one.best_value, one.best_step) == ("finished", 6, 1.0, 2)
        assert other.best_value == one.best_value
        assert 0 < one.size_bytes < 1_000_000
    assert "finished" in ran(runs_command, store)
    with pytest.raises(OptionError, match="is a mirror, and what a mirror keeps"):
        raise CliRunner().invoke(checkpoints_command.app, ["prune", address]).exception


def test_of_weights_alone_their_file_is_fetched(folder_store, tmp_path, monkeypatch):
    trained(tmp_path / "a", folder_store)
    fetched = []

    def get(objects, piece):
        fetched.append(piece.path)
        return get_piece(objects, piece)

    get_piece = reading.download_piece
    monkeypatch.setattr(reading, "download_piece", get)
    ts.load_weights(nn.Linear(4, 3), folder_store)
    assert len(fetched) == 1
    fetched.clear()
    ts.read_checkpoint(folder_store)
    assert len(fetched) > 1


def test_who_is_at_work_is_listed(store, tmp_path):
    save(tmp_path / "a", 1)
    mirror = mirror_of(store, tmp_path / "a", lease=60.0)
    sent(mirror, 1)
    parent = store.rpartition("/")[0]
    listed = {run.directory: run for run in ts.runs(parent).runs}[store]
    assert (listed.state, listed.step) == ("running", 1)
    assert "process" in listed.why
    assert "was heard of" in str(ts.runs(store))
    mirror.close()
    assert ts.runs(store).runs[0].state != "running"


def test_what_is_damaged_is_passed_over_and_said_by_its_address(folder_store, tmp_path):
    mirror = mirror_of(folder_store, tmp_path / "a")
    for step in (1, 2):
        save(tmp_path / "a", step, size=5000)
        sent(mirror, step)
    mirror.close()
    pieces = [path for path in (tmp_path / "store" / "pieces").rglob("*") if path.is_file()]
    newest = max(
        (path for path in pieces if path.stat().st_size > 10_000), key=lambda path: path.stat().st_mtime_ns
    )
    newest.write_bytes(newest.read_bytes()[::-1])
    with pytest.warns(UserWarning, match=f"{folder_store}/checkpoints/000002-step-2 was passed over"):
        assert ts.read_checkpoint(folder_store)["net"]["weight"][0] == 1
    for path in pieces:
        path.write_bytes(b"other")
    with pytest.raises(CheckpointError, match=f"No checkpoint in {folder_store}/checkpoints can be used"):
        ts.read_checkpoint(folder_store)


def test_a_run_that_removes_meanwhile_may_be_read(folder_store, tmp_path, monkeypatch):
    """Each time somebody looks, all that was there is replaced before it is read: what is there then is read."""
    mirror = mirror_of(folder_store, tmp_path / "a")
    save(tmp_path / "a", 1)
    sent(mirror, 1)
    shown, left = reading.StoredRunView, [2, 4]

    def moving(*args):
        run = shown(*args)
        for step in [*range(left[0], left[0] + 2)] if left[0] < 6 else []:
            save(tmp_path / "a", step)
            sent(mirror, step)
        while mirror.pinned:  # what is not kept is being removed
            time.sleep(0.005)
        left[0] += 2
        return run

    monkeypatch.setattr(reading, "StoredRunView", moving)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert ts.read_checkpoint(folder_store)["net"]["weight"][0] == 5
    mirror.close()


@pytest.mark.parametrize(
    "use", [ts.read_checkpoint, ts.runs, lambda address: ts.load_weights(nn.Linear(1, 1), address)]
)
def test_what_is_not_there_is_said(use, folder_store, s3_store, tmp_path, monkeypatch):
    (tmp_path / "store").mkdir()
    if use is not ts.runs:
        with pytest.raises(RunDirectoryError, match="holds no run: give the address"):
            use(folder_store)
    with pytest.raises(RunDirectoryError, match="store-of-nobody"):
        use(f"{folder_store}-of-nobody")
    assert not (tmp_path / "store-of-nobody").exists()
    with pytest.raises(RunDirectoryError, match="there is no such bucket"):
        use("s3://bucket-of-nobody/x")
    monkeypatch.setitem(__import__("sys").modules, "obstore", None)
    monkeypatch.setitem(__import__("sys").modules, "obstore.store", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'truestep\[remote\]'"):
        use(s3_store)


@pytest.mark.parametrize(
    "address", ["gcs://bucket/x", "https://host/w.safetensors?token=word", "S3://bucket/x"]
)
def test_an_address_of_another_kind_is_said(address):
    for use in (
        ts.read_checkpoint,
        ts.runs,
        ts.write_report,
        lambda source: ts.load_weights(nn.Linear(1, 1), source),
    ):
        with pytest.raises(OptionError, match="is an address that nothing here reads") as raised:
            use(address)
        assert "word" not in str(raised.value)


def test_reading_asks_for_nothing_that_changes_the_store(folder_store, tmp_path):
    trained(tmp_path / "a", folder_store)
    asked = []
    before = {path: path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file()}
    with requests_of(before=lambda _, words: asked.append(words)):
        ts.read_checkpoint(folder_store)
        ts.runs(folder_store)
    assert before == {path: path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file()}
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("truestep-read")]
