# SPDX-License-Identifier: Apache-2.0
"""Runs scripts, plain or under the doctor, in processes forked from one that has torch loaded: real, and quick.

The process they are forked from computes nothing itself and keeps to one thread, so that forking it is safe.
"""

import contextlib
import gc
import json
import multiprocessing.util
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Ended:
    """How a process ended; a negative status is the signal that killed it, as with `subprocess`."""

    status: int
    stdout: str
    stderr: str


class Warm:
    """The process with torch loaded; a context manager."""

    def __enter__(self):
        path = (
            os.environ.get("PYTHONPATH", "") if os.environ.get("TRUESTEP_TEST_WHEEL") else str(ROOT / "src")
        )
        environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )
        return self

    def __exit__(self, *_):
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()

    def doctor(self, folder, *arguments, **more):
        """Run `truestep doctor ARGUMENTS` in a folder."""
        return self.start([["doctor", *map(str, arguments)]], folder, **more)[0]

    def plain(self, folder, *arguments, **more):
        """Run `python ARGUMENTS` in a folder."""
        return self.start([["", *map(str, arguments)]], folder, **more)[0]

    def start(self, commands, folder, *, timeout=100, environments=({},), kill=None):
        """Run commands side by side; `kill=(text, signal)` signals the first when it has printed the text."""
        asked = {
            "commands": commands,
            "folder": str(folder),
            "timeout": timeout,
            "environments": list(environments) * (len(commands) // len(environments)),
            "kill": kill,
        }
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return [Ended(**each) for each in json.loads(self._process.stdout.readline())]


def _run(command, folder, environment, streams):
    """In the forked child: become the process that was asked for."""
    os.setsid()
    os.chdir(folder)
    os.environ.update(environment)
    for number, path in zip((1, 2), streams, strict=True):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, number)
        os.close(file)
    with open(os.devnull) as nothing:  # noqa: PTH123
        os.dup2(nothing.fileno(), 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if command[0] == "doctor":
        import truestep.cli.main

        sys.argv = ["truestep", *command]
        truestep.cli.main.main()
    else:
        import runpy

        sys.argv = command[1:]
        sys.path.insert(0, folder)
        runpy.run_path(command[1], run_name="__main__")


def _serve():
    import torch
    import torch._dynamo

    import truestep.doctor.report  # noqa: F401
    from truestep.doctor.catalogue import checks

    torch.set_num_threads(1)
    checks()
    gc.freeze()
    for line in sys.stdin:
        asked = json.loads(line)
        started = []
        for number, command in enumerate(asked["commands"]):
            streams = [f"{asked['folder']}/.{name}{number}" for name in ("out", "err")]
            child = os.fork()
            if child == 0:
                return lambda: _run(command, asked["folder"], asked["environments"][number], streams)
            started.append((child, streams))
        print(json.dumps(_await(started, asked)), flush=True)
    return None


def _end_as_python_does(work):
    """Run, wait for threads and processes, flush, leave; taking torch apart piece by piece would cost seconds."""
    status = 0
    try:
        work()
    except SystemExit as exit_:
        status = exit_.code if isinstance(exit_.code, int) else int(exit_.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    threading._shutdown()
    multiprocessing.util._exit_function()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(status)


def _await(started, asked):
    deadline = time.monotonic() + asked["timeout"]
    statuses = {}
    kill = asked["kill"]
    while len(statuses) < len(started):
        for child, streams in started:
            if child in statuses:
                continue
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                statuses[child] = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > deadline:
                os.killpg(child, signal.SIGKILL)
            elif kill and kill[0] in Path(streams[0]).read_text(errors="replace"):
                os.kill(child, kill[1])
                kill = None
        time.sleep(0.01)
    for child, _ in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # what it left behind
    return [
        {
            "status": statuses[child],
            "stdout": Path(streams[0]).read_text(errors="replace"),
            "stderr": Path(streams[1]).read_text(errors="replace"),
        }
        for child, streams in started
    ]


if __name__ == "__main__":
    # the forked child leaves _serve first, so that nothing of it is on the stack of what it runs
    if (work := _serve()) is not None:
        _end_as_python_does(work)
