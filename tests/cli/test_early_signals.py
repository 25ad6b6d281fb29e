# SPDX-License-Identifier: Apache-2.0
"""Ctrl+C and SIGTERM before a command is loaded end it with one line and the status of a shell; behind that they are its own."""

import signal
import subprocess
import sys

import pytest

CODE = """
import os, sys
import truestep.__main__ as command

when, number, sys.argv = sys.argv[1], int(sys.argv[2]), ["truestep", *sys.argv[3:]]

class Signals:
    def find_spec(self, name, path=None, target=None):
        if name == when:
            os.kill(os.getpid(), number)

sys.meta_path.insert(0, Signals())
command.main()
"""
WHILE_LOADING = ["truestep.cli.main", "typer", "truestep.cli.usage", "truestep.cli.checks"]


def ended(when, number, *words):
    command = [sys.executable, "-c", CODE, when, str(int(number)), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("number", "name", "status"), [(signal.SIGINT, "Ctrl+C", 130), (signal.SIGTERM, "SIGTERM", 143)]
)
@pytest.mark.parametrize("when", WHILE_LOADING)
def test_a_signal_while_a_command_loads_ends_it_with_one_line(when, number, name, status):
    done = ended(when, number, "checks")
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr == f"truestep: ended by {name} before the command had begun; nothing was done\n"


def test_a_loaded_command_has_the_signals_of_python():
    code = (
        "import signal, truestep.__main__ as command, truestep.cli.checks as checks\n"
        "before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)\n"
        "try:\n    command.main()\nexcept SystemExit:\n    pass\n"
        "assert before == (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM))"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code, "checks", "GRAD020"], capture_output=True, check=False
        ).returncode
        == 0
    )


def test_a_signal_that_is_ignored_stays_ignored():
    code = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n" + CODE
    done = subprocess.run(
        [sys.executable, "-c", code, "typer", "2", "checks", "GRAD020"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert "GRAD020" in done.stdout
