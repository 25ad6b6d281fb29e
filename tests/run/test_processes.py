# SPDX-License-Identifier: Apache-2.0
"""Nobody but the run's own process, in its own thread, acts for a run; and it holds the lock from its first instant."""

import ctypes
import gc
import os
import signal
import sys
import textwrap
import threading

import pytest
import torch
from support import warm
from torch import nn

import truestep as ts
from truestep.checkpoints import CheckpointStore
from truestep.checkpoints.listing import checkpoint_overview

POINTS = torch.randn(20, 4, generator=torch.Generator().manual_seed(1))


def run_in(directory, **options):
    return ts.Run(directory, progress=False, doctor=False, **options)


def parts_of(run, **options):
    torch.manual_seed(0)
    net = run.learner(nn.Linear(4, 1), lambda p: torch.optim.SGD(p, lr=0.1))
    return net, run.data(POINTS, batch_size=5, **options)


def loss_of(net):
    return lambda batch: net(batch).squeeze(1).square()


def go(run, net, data, epochs=1, disturb=lambda run: None):
    for _ in run.epochs(epochs):
        for batch in run.batches(data):
            net.update(loss_of(net), batch)
            disturb(run)


def in_child(work, fork=os.fork):
    """Run `work` in a forked process and return what it said, or raised."""
    reader, writer = os.pipe()
    child = fork()
    if child == 0:
        signal.alarm(20)  # a child that hangs would hold up everything
        try:
            said = str(work())
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    return said


def fork_unseen():
    """Fork as C code does: nothing that Python would do in a child is done."""
    return ctypes.PyDLL(None).fork()


def hook(error):
    sys.excepthook(type(error), error, None)


@pytest.mark.sliced(4)
@pytest.mark.parametrize("fork", [os.fork, fork_unseen])
@pytest.mark.parametrize(
    "act",
    [
        lambda run: hook(ConnectionResetError("the parent is gone")),  # as torch's workers do
        lambda run: run.session.end.crashed(ValueError()),
        lambda run: run.close(),
        lambda run: run.__exit__(None, None, None),
        lambda run: run.session.end.endings._process_ends(),
        lambda run: run.session._saver.files.store.forget_attempts(),
        lambda run: run.session._saver.files.store.save(99, {"a": 1}),
    ],
    ids=["hook", "crashed", "close", "with", "atexit", "attempts", "store"],
)
def test_a_forked_process_writes_prunes_and_releases_nothing(tmp_path, act, fork, capfd):
    def files():
        return {
            path.relative_to(tmp_path): path.stat().st_mtime_ns
            for path in tmp_path.rglob("*")
            if path.is_file()
        }

    def disturb(run):
        if run.step != 3:
            return
        run.session._saver.files.store.wait()
        before = files()
        in_child(lambda: act(run), fork)
        assert files() == before
        assert "is in use by process" in in_child(lambda: CheckpointStore(tmp_path / "run" / "checkpoints"))

    with run_in(tmp_path / "run", saving=ts.Saving(every_steps=1, keep_last=9)) as run:
        go(run, *parts_of(run), disturb=disturb)
    assert [each.step for each in checkpoint_overview(tmp_path / "run")] == [4, 3, 2, 1]


def test_in_a_forked_process_everything_is_put_back(tmp_path):
    before = sys.excepthook, signal.getsignal(signal.SIGTERM)

    def disturb(run):
        assert (sys.excepthook, signal.getsignal(signal.SIGTERM)) != before
        now = in_child(lambda: (sys.excepthook, signal.getsignal(signal.SIGTERM)) == before)
        assert now == "True"

    with run_in(tmp_path / "run") as run:
        go(run, *parts_of(run), disturb=disturb)


@pytest.mark.parametrize(
    "use",
    [
        lambda run, net, data: run.log(a=1.0),
        lambda run, net, data: run.save(),
        lambda run, net, data: run.epochs(3),
        lambda run, net, data: next(run.batches(data)),
    ],
)
def test_a_forked_process_that_uses_the_run_is_told_whose_it_is(tmp_path, use):
    run = run_in(tmp_path / "run")
    net, data = parts_of(run)
    go(run, net, data)
    said = in_child(lambda: use(run, net, data))
    assert said.startswith(
        f"RunDirectoryError: This run was made by process {os.getpid()}, and this is process"
    )
    run.close()


def test_a_forked_process_may_compute_with_a_learner(tmp_path):
    with run_in(tmp_path / "run") as run:
        net, data = parts_of(run)
        go(run, net, data)
        expected = net.evaluate(loss_of(net), data)
        assert in_child(lambda: net.evaluate(loss_of(net), data)) == str(expected)


def test_a_loop_that_goes_on_in_a_forked_process_is_stopped_there(tmp_path):
    run = run_in(tmp_path / "run")
    _, data = parts_of(run)
    batches = run.batches(data)
    next(batches)
    assert "RunDirectoryError: This run was made by process" in in_child(lambda: next(batches))
    batches.close()
    run.close()


def test_a_thread_that_calls_the_hook_does_not_end_the_run(tmp_path, capsys):
    def disturb(run):
        thread = threading.Thread(target=hook, args=(ConnectionResetError("a worker went away"),))
        thread.start()
        thread.join()

    with run_in(tmp_path / "run") as run:
        go(run, *parts_of(run), disturb=disturb)
        assert run.step == 4
    assert {each.summary.reason for each in checkpoint_overview(tmp_path / "run")} == {"finished"}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_run_of_a_thread_ends_with_what_that_thread_did_not_catch(tmp_path):
    def disturb(run):
        if run.step == 3:
            raise KeyError("of the thread")

    def work():
        run = run_in(tmp_path / "run")
        go(run, *parts_of(run), disturb=disturb)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert [each.summary.reason for each in checkpoint_overview(tmp_path / "run")] == ["exception KeyError"]


def test_batches_that_are_read_in_another_thread_than_the_updates_are_refused(tmp_path):
    class Ahead:
        def __init__(self, iterator):
            self.iterator, self.error = iterator, None

        def __iter__(self):
            for _ in range(3):
                box = []
                thread = threading.Thread(target=self.take, args=(box,))
                thread.start()
                thread.join()
                if self.error:
                    raise self.error
                yield box[0]

        def take(self, box):
            try:
                box.append(next(self.iterator))
            except ts.DataError as error:
                self.error = error

    run = run_in(tmp_path / "run")
    net, data = parts_of(run)
    with pytest.raises(ts.DataError, match="another thread than the one that calls update"):
        train(net, Ahead(run.batches(data)))
    run.close()


def train(net, batches):
    for batch in batches:
        net.update(loss_of(net), batch)


SCRIPT = """
    import os, sys, torch, truestep as ts
    run = ts.Run(sys.argv[1], progress=False)
    net = run.learner(torch.nn.Linear(4, 1), lambda p: torch.optim.SGD(p, lr=0.1))
    data = run.data(torch.ones(20, 4), batch_size=5)
    for _ in run.epochs(1):
        for batch in run.batches(data):
            net.update(lambda b: net(b).squeeze(1).square(), batch)
            if run.step == 2 and os.fork() == 0:
                if sys.argv[2] == "raise":
                    raise ValueError("of the child")
                sys.exit(0)
            if run.step == 2:
                os.wait()
    names = sorted(name for name in os.listdir(sys.argv[1] + "/checkpoints") if name[0] != ".")
    print(names)
"""


@pytest.mark.parametrize("how", ["exit", "raise"])
def test_a_forked_process_that_ends_as_python_ends_saves_nothing(tmp_path, how):
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(SCRIPT))
    done = warm.run(path, tmp_path / "run", how)
    assert done.stdout == "['000001-step-4']\n", done.stderr


# ------------------------------------------------------------------ the lock


def test_a_second_process_is_refused_from_the_first_instant_on(tmp_path):
    run = run_in(tmp_path / "run")
    said = in_child(lambda: run_in(tmp_path / "run"))
    assert said.startswith(
        f"RunDirectoryError: {tmp_path / 'run' / 'checkpoints'} is in use by process {os.getpid()} on "
    )
    run.close()
    assert "Run(" in in_child(lambda: run_in(tmp_path / "run"))


def test_the_lock_is_there_before_anything_is_written(tmp_path, monkeypatch):
    seen = []
    written = ts.run.directory.write_run_json
    monkeypatch.setattr(
        "truestep.run.directory.write_run_json",
        lambda *given: (seen.append(in_child(lambda: run_in(tmp_path / "run"))), written(*given)),
    )
    run_in(tmp_path / "run").close()
    assert len(seen) == 1
    assert "is in use by process" in seen[0]


def test_a_directory_that_is_refused_is_not_locked(tmp_path):
    run_in(tmp_path / "run", seed=1).close()
    for _ in range(2):
        with pytest.raises(ts.RunDirectoryError, match="holds another run"):
            run_in(tmp_path / "run", seed=2)
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "thesis.tex").touch()
    with pytest.raises(ts.RunDirectoryError, match="holds no run"):
        run_in(tmp_path / "foreign")
    assert not (tmp_path / "foreign" / "checkpoints").exists()


def test_a_run_that_was_forgotten_lets_go_of_its_directory(tmp_path):
    run = run_in(tmp_path / "run")
    store = run.session._saver.files.store
    del run, store
    gc.collect()
    assert in_child(lambda: run_in(tmp_path / "run")).startswith("Run(")
    run_in(tmp_path / "run").close()


def test_a_lock_file_that_is_removed_is_made_again_or_the_save_refused(tmp_path):
    with CheckpointStore(tmp_path, background=False) as store:
        (tmp_path / ".lock").unlink()
        store.save(1, {"a": 1})
        assert "is in use" in in_child(lambda: CheckpointStore(tmp_path))
        (tmp_path / ".lock").unlink()
        other = os.fork()
        if other == 0:
            signal.alarm(20)
            kept = CheckpointStore(tmp_path)
            signal.pause()
            kept.close()
        while not (tmp_path / ".lock").exists() or not (tmp_path / ".lock").read_text().endswith("\n"):
            pass
        with pytest.raises(ts.RunDirectoryError, match=f"in use by process {other}"):
            store.save(2, {"a": 2})
        os.kill(other, signal.SIGKILL)
        os.waitpid(other, 0)
    with CheckpointStore(tmp_path) as store:
        assert [each.step for each in store.usable()] == [1]


def test_a_finished_run_that_another_process_took_further_is_not_written_to(tmp_path):
    run = run_in(tmp_path / "run")
    go(run, *parts_of(run))
    run.log(after_the_end=1.0)

    def further():
        with run_in(tmp_path / "run") as other:
            go(other, *parts_of(other), epochs=2)
            return other.step

    assert in_child(further) == "8"
    with pytest.raises(ts.RunDirectoryError, match="Another process went on with the run"):
        run.log(after_the_end=2.0)


# ------------------------------------------------------------------ many processes


def test_a_process_group_that_begins_after_the_run_was_made_is_noticed(tmp_path, monkeypatch):
    run = run_in(tmp_path / "run")
    parts_of(run)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    with pytest.raises(ts.OptionError, match=r"A process group of 2 was made after ts\.Run"):
        run.epochs(1)
    run.close()
