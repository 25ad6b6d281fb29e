# SPDX-License-Identifier: Apache-2.0
"""A sealed child and its parent: what the child tells arrives, however it ends; the parent is as it was, and goes on."""

import io
import os
import random
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console
from rich.progress import Progress
from torch import nn

from truestep.doctor.forks import fork_obstacles
from truestep.doctor.forks.fork import run_in_sealed_child
from truestep.doctor.forks.fork_obstacles import why_no_fork

pytestmark = pytest.mark.skipif(why_no_fork() is not None, reason=f"no child is forked here: {why_no_fork()}")


def train(steps=1):
    net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.Flatten(), nn.Linear(8 * 36, 8))
    opt = torch.optim.Adam(net.parameters())
    for _ in range(steps):
        opt.zero_grad()
        net(torch.randn(64, 1, 8, 8)).square().mean().backward()
        opt.step()
    return float(sum(each.detach().abs().sum() for each in net.parameters()))


def test_a_child_computes_what_its_parent_would_from_the_same_random_numbers():
    train()  # torch makes a folder with the first optimizer, which a child is refused
    torch.manual_seed(3), random.seed(3), np.random.seed(3)
    told = run_in_sealed_child(lambda: [train(), random.random(), float(np.random.rand())])
    assert told.value == [train(), random.random(), float(np.random.rand())]


@pytest.mark.parametrize("num_threads", [1, 2])
def test_training_in_a_child_ends_also_where_its_parent_used_more_threads(num_threads):
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        torch.randn(400, 400) @ torch.randn(400, 400)
        train(2)
        assert run_in_sealed_child(lambda: train(2)).failure is None
    finally:
        torch.set_num_threads(before)


def raising(error):
    def work():
        raise error

    return work


def fill_memory():
    kept = []
    while True:
        kept.append(torch.ones(1 << 24))


ENDS = {
    "raises": (raising(ValueError("no")), "ValueError: no"),
    "leaves": (lambda: sys.exit(4), "SystemExit: 4"),
    "interrupts": (raising(KeyboardInterrupt("x")), "KeyboardInterrupt: x"),
    "leaves at once": (lambda: os._exit(5), "the child ended with status 5"),
    "is killed": (lambda: os.kill(os.getpid(), signal.SIGKILL), "the child was killed by SIGKILL"),
    "aborts": (os.abort, "the child was killed by SIGABRT"),
    "hangs": (lambda: time.sleep(60), "the child took longer than 1 s"),
    "hangs where nobody can interrupt it": (
        lambda: (signal.signal(signal.SIGTERM, signal.SIG_IGN), threading.Event().wait()),
        "the child took longer than 1 s",
    ),
    "waits for input": (lambda: os.read(0, 9) or sys.exit("nothing"), "SystemExit: nothing"),
    "tells what is no JSON": (lambda: {1, 2}, "the child ended without a word"),
    "closes all": (lambda: os.closerange(0, 100), "the child ended without a word"),
}


@pytest.mark.parametrize("end", ENDS)
def test_however_a_child_ends_there_is_a_plain_line_for_it(end):
    work, line = ENDS[end]
    assert run_in_sealed_child(work, seconds=1).failure == line


def test_a_child_that_fills_memory_ends_before_others_suffer(monkeypatch):
    monkeypatch.setattr(fork_obstacles, "free_memory_bytes", lambda: 600 << 20)
    from truestep.doctor.forks import child

    monkeypatch.setattr(child, "free_memory_bytes", lambda: 600 << 20)
    failure = run_in_sealed_child(fill_memory).failure
    assert failure.startswith("RuntimeError")
    assert "allocate memory" in failure
    assert (
        run_in_sealed_child(lambda: bytearray(1 << 33)).failure == "it took more memory than was left for it"
    )


def facts_of_process(net):
    opened = [Path(f"/proc/self/fd/{each}") for each in range(200)]
    return (
        [str(each.readlink()) for each in opened if each.is_symlink()],
        torch.get_rng_state().tolist(),
        random.getstate(),
        np.random.get_state()[1].tolist(),
        {name: each.tolist() for name, each in net.state_dict().items()},
        signal.pthread_sigmask(signal.SIG_BLOCK, []),
        threading.enumerate(),
        Path.cwd(),
        warnings.filters[:],
        {each: signal.getsignal(each) for each in signal.valid_signals()},
        dict(os.environ),
    )


def children_of_process():
    """Return the processes that this one has, also those that have ended and wait to be noticed; of the tests' own servers, too."""
    return {each for path in Path("/proc/self/task").glob("*/children") for each in path.read_text().split()}


@pytest.mark.parametrize("end", ["raises", "hangs", "is killed"])
def test_a_parent_is_as_it_was(end, capfd):
    torch.manual_seed(0)
    net = nn.Linear(4, 4)
    before, children = facts_of_process(net), children_of_process()

    def work():
        os.chdir("/")
        os.environ["SPOILED"] = "yes"
        torch.rand(3), random.random(), np.random.rand(3)
        print("from the child", flush=True)
        os.write(2, b"from the child")
        with torch.no_grad():
            net.weight.zero_()
        ENDS[end][0]()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run_in_sealed_child(work, seconds=1)
    assert facts_of_process(net) == before
    assert capfd.readouterr() == ("", "")
    assert children_of_process() == children


def test_a_program_s_handler_of_children_is_told_of_its_own_alone():
    heard = []
    before = signal.signal(signal.SIGCHLD, lambda *_: heard.append(1))
    try:
        assert run_in_sealed_child(lambda: 1).value == 1
        assert heard == []
        other = subprocess.Popen(["sleep", "0.1"])
        assert run_in_sealed_child(lambda: time.sleep(1)).failure is None
        assert heard
        other.wait()
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_a_program_that_has_its_children_reaped_by_the_kernel_is_told_the_value():
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert run_in_sealed_child(lambda: [1]).value == [1]
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_an_interrupt_of_the_parent_ends_the_child_and_is_raised():
    def interrupt():
        time.sleep(0.5)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    children = children_of_process()
    thread = threading.Thread(target=interrupt, name="truestep-test")
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        run_in_sealed_child(lambda: time.sleep(60), seconds=50)
    thread.join()
    assert children_of_process() == children


def test_a_thread_that_nobody_knows_is_a_reason_not_to_fork():
    go = threading.Event()
    thread = threading.Thread(target=go.wait, name="of-the-program")
    thread.start()
    try:
        line = "other threads run (of-the-program), and a child could wait for what they hold"
        assert run_in_sealed_child(lambda: 1).failure == line
    finally:
        go.set()
        thread.join()


def test_a_progress_bar_that_waits_for_its_next_refresh_is_none():
    with Progress(console=Console(file=io.StringIO()), refresh_per_second=5) as bar:
        bar.add_task("training")
        assert run_in_sealed_child(lambda: 1).failure is None


def test_where_it_can_t_be_done_a_plain_line_says_so(monkeypatch):
    told = []
    thread = threading.Thread(target=lambda: told.append(why_no_fork()))
    thread.start(), thread.join()
    assert told == ["the training runs in a thread of its own"]
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    reason = "CUDA has started, and a process that uses it can't be forked"
    assert why_no_fork() == f"{reason}; truestep doctor --cpu runs the script without it"
    monkeypatch.undo()
    assert why_no_fork(1 << 50).startswith("too little memory is free")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert why_no_fork().startswith("no child can be sealed on")


def test_where_the_kernel_takes_no_filter_nothing_of_the_user_s_runs(monkeypatch, tmp_path):
    from truestep.doctor.forks import child

    def refuse():
        raise OSError(1, "the kernel takes no filter of system calls")

    monkeypatch.setattr(child, "filter_system_calls", refuse)
    failure = run_in_sealed_child((tmp_path / "made").touch).failure
    assert failure.startswith("the child can't be sealed here")
    assert list(tmp_path.iterdir()) == []


def test_a_child_reads_files_imports_starts_threads_and_reads_back_what_it_wrote(tmp_path):
    (tmp_path / "data.txt").write_text("data")
    with (tmp_path / "log.txt").open("w+") as log:

        def work():
            import wave

            log.write("child"), log.seek(0)
            found = []
            thread = threading.Thread(target=lambda: found.append((tmp_path / "data.txt").read_text()))
            thread.start(), thread.join()
            return [found, log.read(), wave.__name__]

        assert run_in_sealed_child(work).value == [["data"], "child", "wave"]
    assert (tmp_path / "log.txt").read_text() == ""


def test_a_thread_that_waits_for_its_turn_when_the_fork_comes_does_not_stop_the_child():
    end = threading.Event()
    thread = threading.Thread(
        target=lambda: all(not end.is_set() for _ in iter(int, 1)), name="truestep-test"
    )
    thread.start()
    try:
        found = [run_in_sealed_child(lambda: 1, seconds=5).failure for _ in range(40)]
    finally:
        end.set()
        thread.join()
    assert found == [None] * 40  # one in seventeen hung where the fork was made of three calls
