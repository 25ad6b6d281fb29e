# SPDX-License-Identifier: Apache-2.0
"""A pass is over when its source is exhausted, or something follows on a loop that was left; never because something failed."""

import contextlib
import gc
import itertools
import os
import re
import signal
import subprocess
import sys
import threading
import weakref

import pytest
import torch
from support import warm
from torch import nn

import truestep as ts
from truestep.checkpoints.listing import checkpoint_overview

POINTS = torch.randn(20, 4, generator=torch.Generator().manual_seed(1))
BATCHES = 5  # of an epoch
EPOCHS = 2


class Points(torch.utils.data.Dataset):
    """Points that fail to load once, at a given batch of a given epoch, as long as `fails` says so."""

    def __init__(self, at=None):
        self.at, self.loaded = at, 0

    def __len__(self):
        return len(POINTS)

    def __getitem__(self, index):
        self.loaded += 1
        if self.at is not None and self.loaded > self.at * 4:
            self.at = None
            raise OSError("the disk was away")
        return POINTS[index]


class Training:
    """A run in a directory and the numbers of the batches that were given."""

    def __init__(self, directory, data=None, **saving):
        options = {"every_steps": 1, "background": False, "keep_last": 99} | saving
        self.run = ts.Run(directory, progress=False, doctor=False, saving=ts.Saving(**options))
        torch.manual_seed(0)
        self.net = self.run.learner(nn.Linear(4, 1), lambda p: torch.optim.SGD(p, lr=0.1))
        workers = {"num_workers": 0, "check": False} if data is not None else {}
        self.source = self.run.data(
            data if data is not None else POINTS, batch_size=4, shuffle=True, **workers
        )
        self.steps = []

    def update(self, batch):
        self.net.update(lambda b: self.net(b).squeeze(1).square(), batch)
        self.steps.append(self.run.step)

    def body(self, wrap=iter):
        for batch in wrap(self.run.batches(self.source)):
            self.update(batch)

    def go(self, wrap=iter):
        for _ in self.run.epochs(EPOCHS):
            self.body(wrap)
        return self.net.weight.detach().clone()


def first_steps(directory):
    """Leave a loop by `return`, in a function that keeps nothing; return what tells whether its weights are still there."""
    training = Training(directory)
    weights = weakref.ref(training.net.weight)
    for _ in training.run.epochs(EPOCHS):
        for batch in training.run.batches(training.source):
            training.update(batch)
            if training.run.step == 2:
                return weights
    return None


def test_a_run_that_a_loop_was_left_of_is_closed_when_nobody_holds_it(tmp_path):
    weights = first_steps(tmp_path)
    gc.collect()
    assert weights() is None
    newest = checkpoint_overview(tmp_path)[0]
    assert (newest.step, newest.summary.reason, newest.summary.complete) == (2, "closed", True)
    assert (tmp_path / "report.html").exists()


def test_a_report_is_written_again_only_where_another_would_come_of_it(tmp_path):
    report, written = tmp_path / "report.html", []
    for is_there in (True, True, False):
        if not is_there:
            report.unlink()
        training = Training(tmp_path)
        for _ in training.run.epochs(EPOCHS):
            for batch in training.run.batches(training.source):
                training.update(batch)
        for _ in range(2):
            written.append(report.stat().st_mtime_ns)
            training.run.close()
    assert [written[0] == written[1], written[2] == written[3], written[4] == written[5]] == [True] * 3


def loop_alone(directory):
    """Return a learner, and loops whose run has no name."""
    training = Training(directory)
    return training.net, training.run.epochs(1), training.run.batches(training.source)


def test_a_loop_holds_its_run(tmp_path):
    net, epochs, batches = loop_alone(tmp_path)
    gc.collect()
    for _ in epochs:
        for batch in batches:
            net.update(lambda b: net(b).squeeze(1).square(), batch)
            gc.collect()
    assert checkpoint_overview(tmp_path)[0].step == BATCHES


@pytest.fixture
def whole(tmp_path):
    with Training(tmp_path / "whole", Points()).run as run:
        pass
    training = Training(tmp_path / "undisturbed", Points())
    weights = training.go()
    assert training.steps == list(range(1, 11))
    assert run.step == 0
    return weights


def wrapped(iterable):
    for item in iterable:  # noqa: UP028  (a loop, as helpers write it)
        yield item


def zipped(iterable):
    return (item for item, _ in zip(iterable, range(99), strict=False))


class Held:
    """A wrapper that holds its iterator, as progress bars do."""

    def __init__(self, iterable):
        self.iterable = iterable
        self.kept = self  # a circle, for the garbage collector to find some day

    def __iter__(self):
        yield from self.iterable


# ------------------------------------------------------------------ what fails


def with_block(training):
    with training.run:
        training.go()


def uncaught(training):
    try:
        training.go()
    except OSError as error:
        raised = error
    else:
        return
    with contextlib.redirect_stderr(None):  # as python does, behind the last line of a script
        sys.excepthook(type(raised), raised, raised.__traceback__)


def caught_and_closed(training):
    with training.run, contextlib.suppress(OSError):
        training.go()


def closed_in_finally(training):
    try:
        with contextlib.suppress(OSError):
            try:
                training.go()
            finally:
                training.run.close()
    finally:
        training.run.close()


def logged_in_finally(training):
    with training.run:
        try:
            training.go()
        finally:
            training.run.log(last=1.0)


def evaluated_in_except(training):
    with training.run:
        try:
            training.go()
        except OSError:
            training.net.evaluate(lambda b: training.net(b).sum(1), [POINTS])
            raise


WAYS = [with_block, uncaught, caught_and_closed, closed_in_finally, logged_in_finally, evaluated_in_except]


@pytest.mark.sliced(6)
@pytest.mark.parametrize("at", [0, 3, 4, 5, 7])
@pytest.mark.parametrize("way", WAYS)
def test_data_that_raise_never_end_an_epoch(tmp_path, whole, way, at):
    failed = Training(tmp_path / "run", Points(at))
    with contextlib.suppress(OSError):
        way(failed)
    again = Training(tmp_path / "run", Points())
    assert torch.equal(again.go(), whole)
    assert failed.steps + again.steps == list(range(1, EPOCHS * BATCHES + 1))


def test_data_that_raise_through_wrappers_never_end_an_epoch(tmp_path, whole):
    for number, wrap in enumerate((wrapped, Held, zipped)):
        failed = Training(tmp_path / str(number), Points(3))
        with pytest.raises(OSError, match="was away"), failed.run:
            failed.go(wrap)
        again = Training(tmp_path / str(number), Points())
        assert torch.equal(again.go(), whole)
        assert failed.steps + again.steps == list(range(1, 11))


class Killed(Points):
    """Points whose worker kills itself at a sample, once."""

    def __init__(self, place):
        super().__init__()
        self.place = place

    def __getitem__(self, index):
        if index == 7 and torch.utils.data.get_worker_info() and not self.place.exists():
            self.place.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return POINTS[index]


# Where the death breaks a connection, torch opens temporary files to see whether there are too many, and leaves them to Python.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_killed_worker_never_ends_an_epoch(tmp_path, whole):
    def start():
        training = Training(tmp_path / "run", Killed(tmp_path / "killed"))
        training.source = training.run.data(
            Killed(tmp_path / "killed"), batch_size=4, shuffle=True, num_workers=1
        )
        return training

    failed = start()
    with pytest.raises(ts.DataError, match="a worker process died"), failed.run:
        failed.go()
    again = start()
    again.go()
    assert failed.steps + again.steps == list(range(1, 11))


@pytest.mark.sliced(3)
@pytest.mark.parametrize("kind", [KeyError, SystemExit, KeyboardInterrupt])
def test_a_body_that_an_exception_leaves_is_done_again(tmp_path, whole, kind):
    failed = Training(tmp_path / "run", Points())

    def fail(batches):
        for batch in batches:
            yield batch
            if failed.run.step == 4:
                raise kind

    with pytest.raises(kind), failed.run:
        failed.go(fail)
    newest = checkpoint_overview(tmp_path / "run")[0]
    again = Training(tmp_path / "run", Points())
    assert torch.equal(again.go(), whole)
    assert newest.step in (3, 4)


# ------------------------------------------------------------------ what is meant


def leave(training, after, follow):
    """Leave a loop behind its batch number `after`, and let something follow."""
    for batch in training.run.batches(training.source):
        training.update(batch)
        if len(training.steps) == after:
            break
    follow(training)


def nothing(training):
    pass


FOLLOWS = {
    "log": lambda training: training.run.log(a=1.0),
    "evaluate": lambda training: training.net.evaluate(lambda b: training.net(b).sum(1), [POINTS]),
    "update": lambda training: training.net.update(lambda b: training.net(b).squeeze(1).square(), POINTS),
    "next epoch": nothing,
}


@pytest.mark.parametrize("follow", FOLLOWS.values(), ids=FOLLOWS)
def test_a_loop_that_is_left_and_followed_is_over(tmp_path, follow):
    with Training(tmp_path / "run").run:
        pass
    first = Training(tmp_path / "run")
    for epoch in first.run.epochs(EPOCHS):
        leave(first, 2 if epoch == 0 else 5, follow)
        if epoch == 1 and follow is not nothing:
            break
        if epoch == 1:
            continue
    first.run.close()
    assert first.steps == [1, 2, 3, 4, 5]
    again = Training(tmp_path / "run")
    again.go()
    assert again.steps == []


def leave_by_return(training):
    for batch in training.run.batches(training.source):
        training.update(batch)
        if training.run.step == 2:
            return


def leave_by_exception(training):
    with contextlib.suppress(ZeroDivisionError):
        for batch in training.run.batches(training.source):
            training.update(batch)
            if training.run.step == 2:
                raise ZeroDivisionError


def leave_held(training):
    training.held = run_through = iter(training.run.batches(training.source))
    for batch in run_through:
        training.update(batch)
        if training.run.step == 2:
            break


@pytest.mark.parametrize("way", [leave_by_return, leave_by_exception, leave_held])
def test_what_follows_ends_the_pass_however_it_was_left(tmp_path, way):
    training = Training(tmp_path / "run")
    for epoch in training.run.epochs(EPOCHS):
        if epoch == 0:
            way(training)
        else:
            training.body()
    assert training.run.step == 2 + BATCHES


def test_a_loop_that_was_left_can_not_go_on_in_the_next_epoch(tmp_path):
    training = Training(tmp_path / "run")
    epochs = training.run.epochs(EPOCHS)
    next(epochs)
    leave_held(training)
    next(epochs)
    with pytest.raises(ts.DataError, match="This pass through 'source' is over"):
        next(training.held)
    training.body()
    training.held.close()  # late: it has no part in what is read now
    training.run.close()
    assert training.run.step == 2 + BATCHES


@pytest.mark.parametrize("end", ["close", "process"])
def test_a_run_that_is_left_and_closed_goes_on_with_the_next_batch(tmp_path, end):
    first = Training(tmp_path / "run")
    next(first.run.epochs(1))
    leave(first, 2, nothing)
    first.run.close() if end == "close" else first.run.session.end.endings._process_ends()
    again = Training(tmp_path / "run")
    again.go()
    assert again.steps == list(range(3, 11))


def test_a_process_that_ends_between_two_updates_of_a_body_saves_no_state_to_go_on_from(tmp_path):
    first = Training(tmp_path / "run")
    next(first.run.epochs(1))
    for batch in first.run.batches(first.source):
        first.update(batch)
        if first.run.step == 3:
            break
        first.net.update(lambda b: first.net(b).squeeze(1).square(), batch)
    first.run.session.end.endings._process_ends()
    assert [(each.step, each.summary.complete) for each in checkpoint_overview(tmp_path / "run")][:2] == [
        (3, False),
        (2, True),
    ]


def bar(numbers):
    """A progress bar's generator around another."""
    try:
        for number in numbers:  # noqa: UP028  (as bars do)
            yield number
    finally:
        print("closed")


def by_break(training, wrap=iter):
    for _ in wrap(training.run.epochs(9)):
        training.body()
        break


def at_the_top(training):
    for epoch in training.run.epochs(9):
        if epoch == 1:
            break
        training.body()


def by_return(training):
    for _ in training.run.epochs(9):
        training.body()
        if training.run.step:
            return training.steps
    return None


def within_blocks(training):
    for _ in training.run.epochs(9):
        with contextlib.suppress(OSError):
            try:
                training.body()
                break
            finally:
                gc.collect()


def from_two_loops(training):
    for _ in training.run.epochs(9):
        for batch in training.run.batches(training.source):
            training.update(batch)
            if training.run.step == BATCHES:
                break
        if training.run.step == BATCHES:
            break


BROKEN_OFF = {
    "break": by_break,
    "break at the top": at_the_top,
    "return": by_return,
    "within blocks": within_blocks,
    "from two loops": from_two_loops,
    "enumerate": lambda training: by_break(training, enumerate),
    "zip": lambda training: by_break(training, lambda epochs: zip(range(9), epochs, strict=False)),
    "a bar": lambda training: by_break(training, bar),
    "a bar around a bar": lambda training: by_break(training, lambda epochs: enumerate(bar(bar(epochs)))),
    "a generator expression": lambda training: by_break(training, lambda epochs: (e for e in epochs)),
}


def ended(directory):
    """Return whether the newest checkpoint is one to go on from."""
    newest = checkpoint_overview(directory)[0]
    assert newest.step == BATCHES
    return newest.summary.complete


@pytest.mark.parametrize("way", BROKEN_OFF)
def test_a_process_that_ends_behind_a_loop_that_was_broken_off_goes_on_there(tmp_path, capsys, way):
    first = Training(tmp_path, every_steps=99)
    BROKEN_OFF[way](first)
    first.run.session.end.endings._process_ends()
    assert ended(tmp_path)
    assert "ended" not in capsys.readouterr().err
    again = Training(tmp_path, every_steps=99)
    BROKEN_OFF[way](again)
    again.run.close()
    assert again.steps == []


def exits(training):
    sys.exit()


def raises_in_blocks(training):
    with contextlib.suppress(OSError):
        try:
            exits(training)
        finally:
            gc.collect()


EXITS = {
    "an exit": lambda: sys.exit(1),
    "SystemExit": lambda: (_ for _ in ()).throw(SystemExit),
    "within blocks": lambda: raises_in_blocks(None),
}


@pytest.mark.parametrize("way", EXITS)
@pytest.mark.parametrize("wrap", [iter, enumerate, bar])
def test_a_process_that_ends_within_an_epoch_says_what_it_goes_on_from(tmp_path, capsys, way, wrap):
    first = Training(tmp_path, every_steps=99)
    with contextlib.suppress(SystemExit):
        for _ in wrap(first.run.epochs(9)):
            first.body()
            EXITS[way]()
    first.run.session.end.endings._process_ends()
    assert not ended(tmp_path)
    assert re.search(
        r"ended at step 5, in the body of epoch 1.*000001-step-5.*goes on from the beginning.*run\.finish\(\) before",
        capsys.readouterr().err,
    )


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.LBFGS])
def test_an_update_in_which_a_schedule_ends_the_process_is_made_again(tmp_path, optimizer):
    def train(leaves_at=None):
        run = ts.Run(tmp_path, seed=0, doctor=False, saving=ts.Saving(every_steps=1, background=False))

        def rate(step):
            return sys.exit(3) if step == leaves_at else 1 / (1 + step)

        net = run.learner(
            torch.nn.Linear(2, 2),
            lambda p: optimizer(p, lr=0.1),
            schedule=lambda o: torch.optim.lr_scheduler.LambdaLR(o, rate),
        )
        begun = []
        with contextlib.suppress(SystemExit):
            for step in run.steps(6):
                begun.append(step)
                net.update(lambda batch: net(batch).square().sum(1), torch.ones(4, 2))
        run.session.end.endings._process_ends()
        return begun

    assert train(leaves_at=4)[-1] == train()[0]


@pytest.mark.parametrize("exit_by", [sys.exit, lambda: None])
@pytest.mark.parametrize("end", ["finish", "close"])
def test_what_the_line_at_the_end_asks_for_is_enough(tmp_path, capsys, end, exit_by):
    first = Training(tmp_path, every_steps=99)
    with contextlib.suppress(SystemExit):
        for _ in first.run.epochs(9):
            first.body()
            getattr(first.run, end)()
            exit_by()
            break
    first.run.session.end.endings._process_ends()
    assert ended(tmp_path)
    assert capsys.readouterr().err == ""


def test_an_inner_loop_that_is_left_is_over_at_the_next_outer_batch(tmp_path):
    def go(directory, stop=None):
        training = Training(directory)
        inner = training.run.data(POINTS, batch_size=4, shuffle=True)
        given = []
        with training.run:
            for _ in training.run.epochs(EPOCHS):
                for outer in training.run.batches(training.source):
                    for number, batch in enumerate(training.run.batches(inner)):
                        training.update(batch)
                        given.append(batch)
                        if number == 1:
                            break
                    training.update(outer)
                    if training.run.step == stop:
                        os.kill(os.getpid(), signal.SIGTERM)
        return training.net.weight.detach().clone()

    expected = go(tmp_path / "whole")
    for step in (2, 5, 6):
        with pytest.raises(SystemExit):
            go(tmp_path / str(step), step)
        assert torch.equal(go(tmp_path / str(step)), expected)


def test_runs_one_after_another_leave_hooks_and_signals_as_they_were(tmp_path):
    def state():
        return sys.excepthook, threading.excepthook, [signal.getsignal(n) for n in (1, 2, 10, 15)]

    before = state()
    first, second = Training(tmp_path / "first"), Training(tmp_path / "second")
    outer = iter(first.run.epochs(1))
    next(outer)
    next(first.run.batches(first.source))  # left, and not closed
    second.go()
    for end in (first.run.close, second.run.close):
        assert state() != before or end == second.run.close
        end()
    assert state() == before


def test_the_inner_of_two_runs_is_stopped_and_the_outer_still_listens_when_it_is_done(tmp_path):
    outer = Training(tmp_path / "outer")
    inner = Training(tmp_path / "inner")
    inner.go()
    stopped = []
    with pytest.raises(SystemExit) as ended, outer.run:  # noqa: PT012 - a loop is what is ended
        for batch in outer.run.batches(outer.source):
            outer.update(batch)
            if outer.run.step == 2:
                with contextlib.suppress(SystemExit):
                    for _ in inner.run.steps(3):
                        os.kill(os.getpid(), signal.SIGTERM)
                stopped.append(inner.run.step)
            if outer.run.step == 3:
                os.kill(os.getpid(), signal.SIGTERM)
    assert ended.value.code == 143
    assert (stopped, outer.run.step) == ([11], 3)


class Interrupted:
    """What IPython says of a cell."""

    error_in_exec, error_before_exec = KeyboardInterrupt(), None


@pytest.mark.parametrize("within", [True, False])
def test_a_cell_that_was_interrupted_in_a_body_says_what_is_left_out(tmp_path, capsys, within):
    training = Training(tmp_path / "run")
    with contextlib.suppress(KeyboardInterrupt):
        for batch in training.run.batches(training.source):
            training.update(batch)
            if within and training.run.step == 3:
                raise KeyboardInterrupt
    training.run.session.end.endings._cell_done(Interrupted)
    assert (
        "interrupted in the body of step 3: where the loop runs on here" in capsys.readouterr().err
    ) is within


def test_an_interrupted_cell_leaves_no_half_done_state(tmp_path):
    first = Training(tmp_path / "run")
    next(first.run.epochs(1))
    with contextlib.suppress(KeyboardInterrupt):
        for batch in first.run.batches(first.source):
            first.update(batch)
            if first.run.step == 3:
                raise KeyboardInterrupt
    first.run.session.end.endings._cell_done(Interrupted)
    again = Training(tmp_path / "run")  # the cell is run again
    again.go()
    assert again.steps == list(range(3, 11))


LEAVING = """
import os, resource, sys, threading
import torch, truestep as ts
from torch import nn
lack, shape, background, kind, at = sys.argv[1], sys.argv[2], sys.argv[3] == "1", sys.argv[4], int(sys.argv[5])
errors = {"value": ValueError("mine"), "exit": SystemExit(7)}
held = []

def no_files():
    try:
        while True:
            held.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        pass

def no_threads():
    def start(self):
        raise RuntimeError("can't start new thread")
    threading.Thread.start = start

def train(run):
    net = run.learner(nn.Linear(4, 1), lambda p: torch.optim.SGD(p, lr=0.1))
    data = run.data(torch.ones(32, 4), batch_size=4)
    for _ in run.epochs(2):
        for rows in run.batches(data):
            if run.step == at:
                {"files": no_files, "threads": no_threads}[lack]()
                raise errors[kind]
            net.update(lambda rows: net(rows).square().mean(1), rows)

resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
run = ts.Run("run", saving=ts.Saving(every_steps=2, background=background))
if shape == "with":
    with run:
        train(run)
elif shape == "finally":
    try:
        train(run)
    finally:
        run.close()
else:
    train(run)
"""


LACKS = itertools.product(
    ("files", "threads"), ("with", "finally", "plain"), ("1", "0"), ("value", "exit"), ("1", "5")
)
# without files each imports torch anew, which is seconds: a save that finds no thread for itself, and one that finds no file
IN_EACH_RUN = (("threads", "plain", "1", "value", "1"), ("files", "with", "0", "exit", "5"))


@pytest.mark.parametrize(
    ("lack", "shape", "background", "kind", "at"),
    [pytest.param(*case, marks=[] if case in IN_EACH_RUN else pytest.mark.slow) for case in LACKS],
)
def test_what_went_wrong_is_what_is_told_though_nothing_can_be_saved(
    tmp_path, lack, shape, background, kind, at
):
    """Without files in a Python of its own: what another test has imported is not imported on the way out."""
    (tmp_path / "train.py").write_text(LEAVING)
    command = ["train.py", lack, shape, background, kind, at]
    if lack == "files":
        environment = {**os.environ, "PYTHONPATH": warm.paths()}
        ended = subprocess.run(
            [sys.executable, *command],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )
    else:
        ended = warm.run(*command, cwd=tmp_path, timeout=240)
    assert ended.returncode == (7 if kind == "exit" else 1), ended.stderr
    assert "During handling" not in ended.stderr
    lines = ended.stderr.splitlines()
    if kind == "value":
        assert "ValueError: mine" in lines
        assert [each for each in lines if "Error: " in each and each[0] not in " t"] == ["ValueError: mine"]
    if lack == "threads":  # the save is made without one
        assert list((tmp_path / "run" / "checkpoints").glob("*-step-*"))


def failing(training):
    with training.run:
        for _ in training.run.epochs(1):
            for batch in training.run.batches(training.source):
                training.update(batch)
                raise ValueError("mine")


def test_an_exception_before_the_first_whole_checkpoint_is_told_at_the_next_start_too(tmp_path, capsys):
    """What it left is removed with the next whole one, so whoever wants to look at it is told in time."""
    names = []
    for _ in range(2):
        training = Training(tmp_path / "run", every_steps=None)
        with pytest.raises(ValueError, match="mine"):
            failing(training)
        said = capsys.readouterr().err
        assert all(name in said for name in names)
        left = [each.name for each in checkpoint_overview(tmp_path / "run")]
        assert f"checkpoints/{left[0]}, to be looked at until a whole one is saved" in said
        names = left[:1]
    assert "was stopped before its first whole checkpoint, and" in said
    assert "copy it" in said


HELD = """
import sys, torch, truestep as ts

def begun(name):
    run = ts.Run(f"{sys.argv[1]}/{name}", device="cpu", progress=False, quiet=True)
    net = run.learner(torch.nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=1e-2))
    return run, net, run.data(torch.randn(12, 2), batch_size=4)

def update(net, batch):
    net.update(lambda rows: net(rows).squeeze(1) ** 2, batch)

run, net, data = begun("steps")
steps = iter(run.steps(100))
next(steps)
update(net, torch.randn(4, 2))

other, second, rows = begun("batches")
batches = iter(other.batches(rows))
update(second, next(batches))

third, net3, rows3 = begun("both")
pairs = ((epoch, batch) for epoch in third.epochs(5) for batch in third.batches(rows3))
update(net3, next(pairs)[1])
"""


def test_loops_that_a_script_still_holds_at_its_end_say_nothing_of_their_own(tmp_path):
    command = [sys.executable, "-c", HELD, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "Exception ignored" not in ended.stderr, ended.stderr
