# SPDX-License-Identifier: Apache-2.0
"""A store gives back what it was given, keeps what it was told to, and belongs to one process."""

import math
import os
import threading
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support import warm

from truestep.checkpoints import CheckpointStore, Retention, checkpoint_commit
from truestep.checkpoints.checkpoint_removal import undamaged_checkpoints
from truestep.checkpoints.file_operations import CheckpointFiles
from truestep.checkpoints.lock import RunLock
from truestep.core.errors import CheckpointError, OptionError, RunDirectoryError
from truestep.mirror.state_sources import read_checkpoint

both = pytest.mark.parametrize("background", [False, True], ids=["at once", "in the background"])


def weights(value: float, size: int = 8) -> dict:
    return {"learners": {"net": {"modules": {"weight": torch.full((size,), value)}}}, "step": value}


def value_of(state: dict) -> float:
    return state["learners"]["net"]["modules"]["weight"][0].item()


def saved(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if not path.name.startswith("."))


@both
def test_the_newest_of_several_saves_comes_back(tmp_path, background):
    with CheckpointStore(tmp_path, background=background) as store:
        for step in (10, 20, 30):
            store.save(step, weights(step))
        newest = store.newest()
        assert newest.step == 30
        assert value_of(newest.load()) == 30
        assert saved(tmp_path) == ["000002-step-20", "000003-step-30"]


def test_a_store_of_nothing_has_nothing_to_offer(tmp_path):
    with CheckpointStore(tmp_path / "new" / "run") as store:
        assert store.newest() is None
        assert store.resume() is None
        assert store.checkpoints() == []


@both
def test_what_is_saved_is_the_state_at_the_call(tmp_path, background):
    state = weights(1.0, size=100_000)
    with CheckpointStore(tmp_path, background=background) as store:
        store.save(1, state)
        state["learners"]["net"]["modules"]["weight"].fill_(9.0)
        state["step"] = 9.0
        loaded = store.newest().load()
    assert value_of(loaded) == 1.0
    assert loaded["step"] == 1.0


def test_after_going_back_the_checkpoints_of_the_abandoned_way_are_older(tmp_path):
    with CheckpointStore(tmp_path, retention=Retention(last=5)) as store:
        for step in (10, 20, 30, 20):
            store.save(step, weights(step))
        assert [found.step for found in store.checkpoints()] == [20, 30, 20, 10]
        assert store.newest().name == "000004-step-20"


def test_one_saved_in_the_middle_of_a_step_is_no_state_to_go_on_from(tmp_path):
    with CheckpointStore(tmp_path) as store:
        store.save(10, weights(10))
        store.save(11, weights(11), reason="exception", complete=False)
        newest = store.newest()
        assert newest.step == 10
        assert str(newest.passed_over[0]) == "000002-step-11: it was saved in the middle of a step"
        assert store.newest(incomplete=True).step == 11
        store.save(20, weights(20))
        store.wait()
        assert saved(tmp_path) == ["000001-step-10", "000003-step-20"]


def test_the_newest_healthy_one_is_there_for_a_rollback_however_many_follow(tmp_path):
    with CheckpointStore(tmp_path, retention=Retention(last=1)) as store:
        store.save(10, weights(10))
        for step in (20, 30, 40):
            store.save(step, weights(step), healthy=False)
        assert store.newest(healthy=True).step == 10
        assert store.newest().step == 40
        assert saved(tmp_path) == ["000001-step-10", "000004-step-40"]


def test_the_best_and_every_nth_stay(tmp_path):
    accuracy = {10: 0.5, 20: 0.9, 30: math.nan, 40: 0.7, 50: 0.8, 60: 0.6}
    retention = Retention(last=1, best=2, best_metric="accuracy", every=40)
    with CheckpointStore(tmp_path, retention=retention) as store:
        for step, value in accuracy.items():
            store.save(step, weights(step), metrics={"accuracy": value})
        store.wait()
    assert saved(tmp_path) == ["000002-step-20", "000004-step-40", "000005-step-50", "000006-step-60"]


@pytest.mark.parametrize("mode", ["max", "min"])
def test_of_equals_the_first_stays(tmp_path, mode):
    retention = Retention(last=1, best=1, best_metric="value", best_mode=mode)
    with CheckpointStore(tmp_path, retention=retention) as store:
        for step in (1, 2, 3, 4):
            store.save(step, weights(step), metrics={"value": 0.5})
        store.wait()
    assert saved(tmp_path) == ["000001-step-1", "000004-step-4"]


def test_the_best_by_the_lowest_value(tmp_path):
    retention = Retention(last=1, best=1, best_metric="loss", best_mode="min")
    with CheckpointStore(tmp_path, retention=retention) as store:
        for step, loss in [(1, 3.0), (2, 1.0), (3, 2.0)]:
            store.save(step, weights(step), metrics={"loss": loss})
        store.wait()
    assert saved(tmp_path) == ["000002-step-2", "000003-step-3"]


@pytest.mark.parametrize(
    "wrong", [{"last": 0}, {"best": -1}, {"every": 0}, {"best": 1}, {"best_mode": "biggest"}]
)
def test_a_retention_that_makes_no_sense_is_refused(wrong):
    with pytest.raises(OptionError):
        Retention(**wrong)


def test_metrics_come_back_also_when_json_has_no_number_for_them(tmp_path):
    with CheckpointStore(tmp_path) as store:
        store.save(1, {}, metrics={"loss": math.nan, "accuracy": 0.5, "perplexity": math.inf})
        metrics = store.newest().metrics
    assert math.isnan(metrics.pop("loss"))
    assert metrics == {"accuracy": 0.5, "perplexity": math.inf}


def test_a_metric_that_is_a_tensor_is_refused(tmp_path):
    with CheckpointStore(tmp_path) as store, pytest.raises(CheckpointError, match=r"'loss' is a tensor"):
        store.save(1, {}, metrics={"loss": torch.tensor(1.0)})


def test_a_second_store_is_refused_and_told_who_has_the_directory(tmp_path):
    with (
        CheckpointStore(tmp_path),
        pytest.raises(RunDirectoryError, match=rf"{tmp_path.name} is in use by process {os.getpid()} on "),
    ):
        CheckpointStore(tmp_path)
    CheckpointStore(tmp_path).close()


def test_a_lock_that_goes_with_the_interpreter_says_nothing(tmp_path, monkeypatch):
    lock = RunLock(tmp_path, CheckpointFiles())
    with monkeypatch.context() as patch:
        patch.setattr("truestep.checkpoints.lock.os", None)  # as modules are by then
        lock.__del__(lambda: True)
        with pytest.raises(AttributeError):
            lock.__del__(lambda: False)
    lock.release()


def test_a_forked_worker_neither_keeps_the_lock_nor_writes(tmp_path):
    store = CheckpointStore(tmp_path)
    go, done = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.read(go[0], 1)
            try:
                store.save(1, {})
                os.write(done[1], b"saved")
            except CheckpointError:
                os.write(done[1], b"refused")
            os.read(go[0], 1)
        finally:
            os._exit(0)
    os.write(go[1], b"x")
    assert os.read(done[0], 100) == b"refused"
    store.close()
    CheckpointStore(tmp_path).close()  # the child is alive, and has no part in the lock
    os.write(go[1], b"x")
    os.waitpid(child, 0)
    for end in (*go, *done):
        os.close(end)


def test_a_closed_store_saves_nothing(tmp_path):
    store = CheckpointStore(tmp_path)
    store.close()
    with pytest.raises(CheckpointError, match="is closed"):
        store.save(1, {})
    store.close()


class Refusing(CheckpointFiles):
    """The disk is full from the second file on."""

    full = False

    def create(self, path):
        if self.full:
            raise OSError(28, "No space left on device", str(path))
        return super().create(path)


def test_an_error_of_the_writer_surfaces_at_the_next_call_and_leaves_what_there_was(tmp_path):
    files = Refusing()
    with CheckpointStore(tmp_path, files=files) as store:
        store.save(1, weights(1))
        store.wait()
        files.full = True
        store.save(2, weights(2))
        with pytest.raises(
            CheckpointError, match=r"000002-step-2 .* could not be written .*No space left"
        ) as caught:
            store.save(3, weights(3))
        assert "What was saved before is untouched" in str(caught.value)
        files.full = False
        store.save(4, weights(4))
        assert store.newest().step == 4
    assert saved(tmp_path) == ["000001-step-1", "000003-step-4"]


def test_an_error_of_the_writer_surfaces_at_close_and_the_lock_is_released(tmp_path):
    files = Refusing()
    store = CheckpointStore(tmp_path, files=files)
    files.full = True
    store.save(1, weights(1))
    with pytest.raises(CheckpointError, match="could not be written"):
        store.close()
    CheckpointStore(tmp_path).close()


def test_an_error_of_the_writer_does_not_hide_the_exception_of_the_training(tmp_path):
    files = Refusing()

    def train():
        with CheckpointStore(tmp_path, files=files) as store:
            files.full = True
            store.save(1, weights(1))
            raise ZeroDivisionError("of the user")

    with pytest.raises(ZeroDivisionError, match="of the user") as caught:
        train()
    assert "could not be written" in caught.value.__notes__[0]


class Slow(CheckpointFiles):
    """A disk that waits to be told."""

    def __init__(self):
        self.may_write = threading.Event()

    def create(self, path):
        assert self.may_write.wait(60)
        return super().create(path)


def test_one_save_is_in_flight_and_the_stall_says_what_waiting_cost(tmp_path):
    files = Slow()
    with CheckpointStore(tmp_path, files=files) as store:
        store.save(1, weights(1))
        assert saved(tmp_path) == []
        first = store.stall_seconds
        threading.Timer(0.2, files.may_write.set).start()
        store.save(2, weights(2))
        assert saved(tmp_path)[0] == "000001-step-1"
        assert store.stall_seconds.last > 0.1
        assert store.stall_seconds.total == pytest.approx(first.total + store.stall_seconds.last)


def test_three_runs_that_died_pass_a_checkpoint_over(tmp_path):
    with CheckpointStore(tmp_path) as store:
        store.save(1, weights(1))
        store.save(2, weights(2))
    for _ in range(3):
        with CheckpointStore(tmp_path) as store:
            assert store.resume().checkpoint.step == 2
    with CheckpointStore(tmp_path) as store, pytest.warns(UserWarning, match="3 runs went on from it"):
        assert store.resume().checkpoint.step == 1


def test_a_run_that_reaches_its_next_save_clears_the_count(tmp_path):
    with CheckpointStore(tmp_path) as store:
        store.save(1, weights(1))
    for step in range(2, 8):
        with CheckpointStore(tmp_path) as store:
            assert store.resume().checkpoint.step == step - 1
            store.save(step, weights(step))


def test_a_save_in_the_middle_of_a_step_clears_no_count(tmp_path):
    with CheckpointStore(tmp_path) as store:
        store.save(1, weights(1))
        store.save(2, weights(2))
    for _ in range(3):
        with CheckpointStore(tmp_path) as store:
            assert store.resume().checkpoint.step == 2
            store.save(3, weights(3), complete=False)
    with CheckpointStore(tmp_path) as store, pytest.warns(UserWarning, match="none of them reached its next"):
        assert store.resume().checkpoint.step == 1


def test_a_run_that_ends_well_without_a_save_clears_the_count(tmp_path):
    with CheckpointStore(tmp_path) as store:
        store.save(1, weights(1))
        store.save(2, weights(2))
    for _ in range(5):
        with CheckpointStore(tmp_path) as store:
            assert store.resume().checkpoint.step == 2
            store.forget_attempts()


def test_the_last_one_left_is_used_however_often_it_was_tried(tmp_path):
    with CheckpointStore(tmp_path) as store:
        store.save(1, weights(1))
    for _ in range(6):
        with CheckpointStore(tmp_path) as store:
            assert store.resume().checkpoint.step == 1


def test_one_that_was_tried_often_is_used_when_all_others_are_damaged(tmp_path):
    with CheckpointStore(tmp_path) as store:
        store.save(1, weights(1))
        store.save(2, weights(2))
    (file,) = (tmp_path / "000001-step-1").glob("*.safetensors")
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    for _ in range(5):
        with CheckpointStore(tmp_path) as store:
            assert store.resume().checkpoint.step == 2


def test_a_damaged_one_counts_for_nothing_when_others_are_removed(tmp_path):
    with CheckpointStore(tmp_path) as store:
        store.save(1, weights(1))
        store.save(2, weights(2))
        newest = store.newest().path
    (file,) = newest.glob("*.safetensors")
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with CheckpointStore(tmp_path) as store:
        with pytest.warns(UserWarning, match="000002-step-2 was passed over"):
            store.resume()
        store.save(3, weights(3))
        store.wait()
    assert saved(tmp_path) == ["000001-step-1", "000002-step-2", "000003-step-3"]


def test_what_a_killed_process_left_half_done_is_removed_by_the_next(tmp_path):
    for name in (".tmp-000007-step-7-abcd", ".del-000003-step-3"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").write_bytes(b"half")
    with CheckpointStore(tmp_path) as store:
        assert [path.name for path in tmp_path.iterdir()] == [".lock"]
        store.save(8, {})


def test_a_run_can_be_read_while_it_saves_and_prunes(quick):
    store = CheckpointStore(quick, retention=Retention(last=1))
    store.save(1, weights(1))
    store.wait()
    found, stop = [], threading.Event()

    def read():
        while not stop.is_set():
            found.append(read_checkpoint(quick)["step"])

    reader = threading.Thread(target=read)
    reader.start()
    for step in range(2, 80):
        store.save(step, weights(step))
    store.close()
    stop.set()
    reader.join()
    assert found == sorted(found)
    assert len(set(found)) > 3


LEAVING = """
import sys, torch
from truestep.checkpoints import CheckpointStore
from truestep.checkpoints.file_operations import CheckpointFiles

class Full(CheckpointFiles):
    def create(self, path):
        raise OSError(28, "No space left on device")

store = CheckpointStore(sys.argv[1])
store.save(1, {"weights": torch.ones(1000)})
store.wait()
store.save(2, {"weights": torch.ones(3_000_000)})
if sys.argv[2] == "full":
    store.wait()
    store._files = Full()
    store.save(3, {})
"""


@pytest.mark.sliced(2)
@pytest.mark.parametrize("disk", ["roomy", "full"])
def test_a_program_that_ends_without_closing_finishes_its_save_or_says_why_not(tmp_path, disk):
    result = warm.run("-c", LEAVING, tmp_path, disk)
    assert result.returncode == 0, result.stderr
    assert saved(tmp_path) == ["000001-step-1", "000002-step-2"]
    if disk == "full":
        assert result.stderr.startswith(
            "truestep: The checkpoint 000003-step-3 (0 bytes) could not be written"
        )
    else:
        assert result.stderr == ""


@pytest.mark.parametrize(
    "options",
    [
        {"reason": 5},
        {"reason": None},
        {"healthy": None},
        {"complete": 1},
        {"metrics": {1: 2.0}},
        {"metrics": [1]},
    ],
)
def test_what_could_not_be_read_back_is_refused_when_it_is_saved(tmp_path, options):
    name = next(iter(options))
    error = OptionError if name in ("healthy", "complete") else CheckpointError  # flags are asked by one rule
    with CheckpointStore(tmp_path, background=False) as store:
        with pytest.raises(error, match=f"{name}="):
            store.save(1, {"x": 1}, **options)
        store.save(1, {"x": 1})
        assert store.newest().name == "000001-step-1"


def test_a_retention_of_another_type_is_refused_at_once(tmp_path):
    with pytest.raises(OptionError, match=r"retention=5: write ts\.Retention"):
        CheckpointStore(tmp_path, retention=5)


def test_what_the_disk_was_set_to_work_on_is_named_again_so_that_its_memory_is_given_back(quick, monkeypatch):
    class Watched(CheckpointFiles):
        def __init__(self):
            self.named = []

        def write_back(self, descriptor, begin, size):
            self.named.append(range(begin, begin + size))
            raise OSError("a hint that is refused harms nothing")

    for name, size in (("CHUNK_BYTES", 1000), ("WRITE_BACK_BYTES", 3000), ("LOOK_BACK_BYTES", 6000)):
        monkeypatch.setattr(checkpoint_commit, name, size)
    with CheckpointStore(quick, background=False, files=(files := Watched())) as store:
        store.save(1, {"w": torch.arange(10_000.0)})
        assert torch.equal(store.newest().load()["w"], torch.arange(10_000.0))
    assert files.named[0].start == 0
    for before, named in pairwise(files.named):
        assert named.stop - before.stop == pytest.approx(3000, abs=1000)
        assert named.start == max(0, before.stop - 6000)


class CountingReads(CheckpointFiles):
    """Files of which it is known how many bytes of each were read."""

    def __init__(self):
        self.bytes = 0

    def read(self, descriptor, buffer, at):
        got = super().read(descriptor, buffer, at)
        self.bytes += got
        return got


def test_a_kept_manifest_is_read_again_only_where_its_file_was_written_to(tmp_path):
    files, known = CountingReads(), {}
    with CheckpointStore(tmp_path, background=False) as store:
        store.save(1, weights(1))
        store.save(2, weights(2))
    paths = [tmp_path / name / "manifest.json" for name in saved(tmp_path)]
    sizes = [path.stat().st_size for path in paths]

    def read_of():
        files.bytes = 0
        found = undamaged_checkpoints(files, tmp_path, (), known)
        return len(found), files.bytes

    assert read_of()[0] == 2
    assert read_of() == (2, 0)
    status, content = paths[0].stat(), paths[0].read_bytes()
    paths[0].write_bytes(content)  # as many bytes, and its time put back
    os.utime(paths[0], ns=(status.st_atime_ns, status.st_mtime_ns))
    assert read_of() == (2, sizes[0] - 2)  # all but the end of its line
    paths[0].write_bytes(content.replace(b"periodic", b"sporadic"))
    assert read_of()[0] == 1
    paths[1].parent.rename(paths[1].parent.with_name(paths[1].parent.name.replace("2", "7")))
    assert read_of() == (0, sizes[0] - 2)  # damaged, and another save's


@given(
    st.lists(
        st.text("aA.é:/", min_size=1, max_size=4) | st.integers(70, 300).map("n".__mul__),
        min_size=2,
        max_size=5,
        unique=True,
    )
)
@settings(max_examples=20)
def test_names_of_any_learners_are_files_of_their_own_on_every_system(names):
    """Windows and macOS have one file for names that differ by case alone; a name may have 255 characters, a path there 260."""
    state = {"learners": {name: {"modules": {"w": torch.full((2,), i)}} for i, name in enumerate(names)}}
    with TemporaryDirectory() as folder, CheckpointStore(folder, background=False) as store:
        store.save(1, state)
        files = [*Path(folder).rglob("*.safetensors")]
        assert len({path.name.lower() for path in files}) == len(names)
        assert max(len(str(path.relative_to(folder))) for path in files) < 120
        found = store.newest().load()["learners"]
    assert {name: parts["modules"]["w"].tolist() for name, parts in found.items()} == {
        name: [i, i] for i, name in enumerate(names)
    }
