# SPDX-License-Identifier: Apache-2.0
"""`python COMMAND` as a process of its own, forked from one that has torch loaded: real, and started in no time.

It has its own arguments, folder, environment, streams, random streams, exit status and signals, as one that
`subprocess` starts. Tests of importing and starting itself, and of what Python reads before it runs anything
(`PYTHONWARNINGS`, `PYTHONIOENCODING`, `-W`), start an interpreter instead.
"""

import atexit
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"
STARTED: set[tuple] = set()
"""The processes with more modules, by `windows` and these."""


def paths() -> str:
    """Return what PYTHONPATH is where truestep is to be imported: the wheel's under `make test`, else the source's."""
    return os.environ.get("PYTHONPATH", "") if os.environ.get("TRUESTEP_TEST_WHEEL") else str(SOURCE)


def _text_of(file):
    """Return what was written to a file of ours, and close it."""
    if file is None:
        return ""
    with file:
        file.seek(0)
        return file.read().decode(errors="replace")


@functools.cache
def _server(windows: Path | None, loaded: str) -> socket.socket:
    """Start the process that the others are forked from, once; it ends with this one.

    One more has `windows` on its path. One for modules that are `loaded` besides is forked from the one that has most of the first
    of them.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if loaded:
        words = loaded.split()
        has = next(n for n in reversed(range(len(words))) if not n or (windows, *words[:n]) in STARTED)
        asked = json.dumps({"also": words[has:]}).encode()
        with theirs:
            socket.send_fds(_server(windows, " ".join(words[:has])), [asked], [theirs.fileno()])
        STARTED.add((windows, *words))
        if not ours.recv(16):  # the number of that process
            raise RuntimeError("the process that another is to be forked from is gone")
        atexit.register(ours.close)
        return ours
    environment = {**os.environ, "PYTHONPATH": paths(), "OMP_NUM_THREADS": "1"}
    if windows is not None:
        environment["PYTHONPATH"] = os.pathsep.join((str(windows), paths()))
        environment["STANDS_IN_FOR_WINDOWS"] = str(windows)
    command = [sys.executable, str(HERE / "warm_process.py"), str(theirs.fileno())]
    process = subprocess.Popen(command, env=environment, pass_fds=[theirs.fileno()], cwd=HERE)
    theirs.close()

    def end():
        ours.close()
        process.wait(60)

    atexit.register(end)
    return ours


class Process:
    """A Python process that runs: a file, `-m module` or `-c code`, and what follows; what tests use of `Popen`.

    A stream that is not given is empty, or becomes the text `output` or `error` when the process has ended.
    """

    def __init__(
        self, *command, cwd=None, env=None, stdin=None, stdout=None, stderr=None, windows=None, loaded=""
    ):
        self.args, self.returncode = [str(each) for each in command], None
        self.output = self.error = ""
        asked = {
            "command": self.args,
            "cwd": str(cwd or Path.cwd()),
            "env": {**os.environ, "PYTHONPATH": paths()} if env is None else dict(env),
        }
        # packets: the number of a process that ends at once and its status came as one number, once in thousands of starts
        self._status, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._kept = [tempfile.TemporaryFile() if given is None else None for given in (stdout, stderr)]  # noqa: SIM115
        with Path(os.devnull).open() as nothing, theirs:
            streams = [stdin or nothing, stdout or self._kept[0], stderr or self._kept[1], theirs]
            numbers = [each if isinstance(each, int) else each.fileno() for each in streams]
            socket.send_fds(_server(windows, loaded), [json.dumps(asked).encode()], numbers)
        self.pid = self._told(240)  # the first waits until torch is loaded

    def _told(self, timeout):
        self._status.settimeout(timeout)
        told = self._status.recv(16)
        if not told:
            raise RuntimeError("the process that warm processes are forked from is gone")
        return int(told)

    def wait(self, timeout=120):
        """Return the exit status; a negative one is the signal that ended it."""
        if self.returncode is None:
            try:
                self.returncode = self._told(timeout)
            except TimeoutError:
                raise subprocess.TimeoutExpired(self.args, timeout) from None
            self._status.close()
            self.output, self.error = map(_text_of, self._kept)
        return self.returncode

    def poll(self):
        """Return the exit status, or None while it runs."""
        try:
            return self.wait(timeout=1e-3)
        except subprocess.TimeoutExpired:
            return None

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)


def run(*command, input="", timeout=120, **settings) -> subprocess.CompletedProcess[str]:  # noqa: A002
    """Run `python COMMAND` to its end, as `subprocess.run(..., capture_output=True, text=True)` does."""
    with tempfile.TemporaryFile() as stdin:
        stdin.write(input.encode())
        stdin.seek(0)
        process = Process(*command, stdin=stdin, **settings)
    try:
        process.wait(timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise
    return subprocess.CompletedProcess(process.args, process.returncode, process.output, process.error)
