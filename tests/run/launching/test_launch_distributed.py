# SPDX-License-Identifier: Apache-2.0
"""`truestep launch` and `ts.spawn` over torchrun's own agent, with real processes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from support.ranks import environment

PROGRAM = Path(__file__).parents[1] / "programs" / "ranks.py"
LAUNCH = [sys.executable, "-c", "from truestep.cli.main import main; main()", "launch", "-n", "2"]
SPAWNING = """
import truestep as ts

def work(number):
    run = ts.Run("runs/x", progress=False, quiet=True)
    place = run.rank, run.world_size, number
    if number < 0 and run.rank == 1:
        raise ValueError("below zero")
    run.close()
    return place

if __name__ == "__main__":
    print(ts.spawn(work, 2, 7))
    try:
        ts.spawn(work, 2, -1)
    except ts.RankError as error:
        print(error.rank, error)
"""


def launch(folder, *words):
    command = [*LAUNCH, "--logs", str(folder / "logs"), *map(str, words)]
    return subprocess.run(
        command,
        check=False,
        cwd=folder,
        env=environment(TIMEOUT=20),
        capture_output=True,
        text=True,
        timeout=250,
    )


def last_line(text):
    return text.strip().splitlines()[-1].split(":", 1)[1]


@pytest.mark.slow
def test_a_launch_restarts_after_a_kill_and_ends_with_the_same_bits(tmp_path):
    for name in ("calm", "killed"):
        (tmp_path / name).mkdir()
    calm = launch(tmp_path, PROGRAM, "trains", tmp_path / "calm")
    killed = launch(
        tmp_path, "--restarts", 1, "--grace-seconds", 3, PROGRAM, "trains", tmp_path / "killed", "kill", 9, 1
    )
    assert (calm.returncode, killed.returncode) == (0, 0), killed.stderr
    assert last_line(calm.stdout) == last_line(killed.stdout)


@pytest.mark.slow
def test_a_failure_names_who_was_first(tmp_path):
    failed = launch(tmp_path, PROGRAM, "trains", tmp_path, "raise", 4, 1)
    assert failed.returncode == 1
    assert "died first: ValueError: a bad sample" in failed.stderr
    assert f"at {PROGRAM}:" in failed.stderr


@pytest.mark.slow
def test_killing_the_launcher_leaves_no_process(tmp_path):
    command = [
        *LAUNCH,
        "--logs",
        str(tmp_path / "logs"),
        str(PROGRAM),
        "trains",
        str(tmp_path),
        "stop",
        "3",
        "1",
    ]
    launcher = subprocess.Popen(
        command, cwd=tmp_path, env=environment(TIMEOUT=200), stdout=subprocess.DEVNULL
    )
    until = time.monotonic() + 120
    while not (tmp_path / "failed").exists() and time.monotonic() < until:
        time.sleep(0.1)
    children = psutil.Process(launcher.pid).children(recursive=True)
    ranks = [child for child in children if str(PROGRAM) in child.cmdline()]
    assert len(ranks) == 2
    os.kill(launcher.pid, signal.SIGKILL)
    launcher.wait()
    _, alive = psutil.wait_procs(ranks, timeout=10)
    assert alive == []
    for child in children:
        if child.is_running() and child not in ranks:
            child.kill()


@pytest.mark.slow
def test_a_function_in_several_processes(tmp_path):
    (tmp_path / "spawning.py").write_text(SPAWNING)
    command = [sys.executable, "spawning.py"]
    found = subprocess.run(
        command, check=False, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=250
    )
    lines = found.stdout.splitlines()
    assert lines[0] == "[(0, 2, 7), (1, 2, 7)]", found.stderr
    assert lines[1].startswith("1 rank 1 (process ")
    assert "ValueError: below zero" in lines[1]
