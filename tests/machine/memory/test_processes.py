# SPDX-License-Identifier: Apache-2.0
"""Processes that hold cards are listed, and ended only when told, by their owner."""

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

GIB = 2**30
POLITE = "import time; print('up', flush=True); time.sleep(60)"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {POLITE}"


@pytest.fixture
def worker():
    started = []

    def start(code, **settings):
        process = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, **settings
        )
        started.append(process)
        assert process.stdout.readline() == "up\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def using(machine, *pids):
    machine.has(machine.card(compute=",".join(f"{pid}:{GIB}" for pid in pids)))
    return machine


def test_those_that_hold_memory_are_listed_most_first(machine, worker):
    small, large = worker(POLITE), worker(POLITE)
    machine.has(
        machine.card(compute=f"{small.pid}:{GIB},{large.pid}:{2 * GIB}"),
        machine.card(compute=f"{large.pid}:{GIB}"),
    )
    document = json.loads(machine.run("gpus", "free", "--json").stdout)
    listed = [
        (one["process"]["pid"], one["process"]["memory_used_bytes"], one["cards"])
        for one in document["processes"]
    ]
    assert listed[:2] == [(large.pid, 3 * GIB, [0, 1]), (small.pid, GIB, [0])]


def test_nothing_is_ended_unless_told_twice(machine, worker):
    process = worker(POLITE)
    assert using(machine, process.pid).run("gpus", "free").returncode == 0
    result = machine.run("gpus", "free", "--end", str(process.pid))
    assert f"would end {process.pid}; add --yes" in result.stderr
    assert process.poll() is None


def test_ones_own_process_is_ended_when_told(machine, worker):
    process = worker(POLITE)
    result = using(machine, process.pid).run("gpus", "free", "--end", str(process.pid), "--yes")
    assert (result.returncode, process.wait(30)) == (0, -signal.SIGTERM)


def test_one_that_does_not_end_is_said_and_can_be_killed(machine, worker):
    process = worker(STUBBORN)
    arguments = ("gpus", "free", "--end", str(process.pid), "--yes")
    result = using(machine, process.pid).run(*arguments, "--timeout", "0.3s")
    assert (result.returncode, process.poll()) == (1, None)
    assert "--force" in result.stderr
    assert machine.run(*arguments, "--force").returncode == 0
    assert process.wait(30) == -signal.SIGKILL


def test_a_process_that_holds_no_card_is_left_alone(machine, worker):
    bystander, holder = worker(POLITE), worker(POLITE)
    result = using(machine, holder.pid).run("gpus", "free", "--end", str(bystander.pid), "--yes")
    assert (result.returncode, bystander.poll()) == (1, None)
    assert f"those that do are: {holder.pid}" in result.stderr


def test_another_users_process_is_left_alone_even_by_root(machine, worker):
    if os.geteuid() != 0:
        pytest.skip("starting another user's process needs root")
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    process = subprocess.Popen(
        ["/bin/sh", "-c", "echo up; exec sleep 60"],
        stdout=subprocess.PIPE,
        text=True,
        user="nobody",
        cwd=folder,
    )
    try:
        assert process.stdout.readline() == "up\n"
        result = using(machine, process.pid).run("gpus", "free", "--end", str(process.pid), "--yes")
        assert (result.returncode, process.poll()) == (1, None)
        assert "belongs to nobody" in result.stderr
    finally:
        process.kill()
        process.communicate()
        shutil.rmtree(folder)


def test_the_program_does_not_end_its_parent(machine):
    words = ["truestep", "gpus", "free", "--end", str(os.getpid()), "--yes"]
    code = f"import runpy, sys; sys.argv = {words}; runpy.run_module('truestep', run_name='__main__')"
    result = using(machine, os.getpid()).python(code)  # a child of this process, as no forked one is
    assert result.returncode == 1
    assert "what started it" in result.stderr


def test_without_cards_there_is_nothing_to_end(machine):
    machine.has(init="!9")
    result = machine.run("gpus", "free", "--end", "1", "--yes")
    assert result.returncode == 3


def test_a_process_that_only_has_the_card_open_is_found(machine, tmp_path):
    from truestep.machine.gpus.read import GpuReport
    from truestep.machine.memory.processes import holding_processes

    descriptors = tmp_path / str(os.getpid()) / "fd"
    descriptors.mkdir(parents=True)
    (descriptors / "9").symlink_to("/dev/nvidia-uvm")
    (tmp_path / "self").mkdir()
    (one,) = holding_processes(GpuReport(taken_at="", hostname=""), tmp_path)
    assert (one.process.pid, one.process.user, one.cards, one.own) == (
        os.getpid(),
        pwd.getpwuid(os.getuid()).pw_name,
        (),
        True,
    )


def test_python_ends_a_process_when_told(machine, worker):
    process = worker(POLITE)
    code = f"import truestep as ts; print(ts.free_memory(end=[{process.pid}]).endings)"
    output = using(machine, process.pid).python(code).stdout
    assert f"pid={process.pid}, ended=True" in output
    assert process.wait(30) == -signal.SIGTERM
