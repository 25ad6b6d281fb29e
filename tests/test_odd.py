# SPDX-License-Identifier: Apache-2.0
"""`make test-odd`: each of its environments is as odd as it says."""

import functools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
ODD = REPOSITORY / "tools" / "odd.py"
MAKEFILE = (REPOSITORY / "Makefile").read_text("utf-8")
OF_TESTS = ("TRUESTEP_TEST_WHEEL", "TRUESTEP_TEST_DRAW")
NAMES = re.search(r"^ODD \?= (.*)", MAKEFILE, re.MULTILINE).group(1).split()
SEEN = """
import json, os, resource, signal, tempfile, time
path = os.path.join(tempfile.mkdtemp(), "file")
with open(path, "w"): pass
print(json.dumps({
    "names": sorted(os.environ), "lang": os.environ.get("LANG"), "west": time.timezone, "path": path,
    "mode": os.stat(path).st_mode & 0o777, "files": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    "ignored": [signal.getsignal(each) is signal.SIG_IGN for each in (signal.SIGHUP, signal.SIGINT)],
    "user": os.geteuid(), "may_write": os.access(".", os.W_OK),
}))
"""


@functools.cache
def seen_in(name):
    command = [sys.executable, str(ODD), name, sys.executable, "-c", SEEN]
    told = subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, text=True).stdout
    return json.loads(told.splitlines()[-1])


def test_every_environment_is_run_by_default():
    refused = subprocess.run(
        [sys.executable, str(ODD), "x", "true"], check=False, capture_output=True, text=True
    )
    assert refused.returncode == 1
    assert ", ".join([*NAMES, "together"]) in refused.stderr


@pytest.mark.parametrize(
    ("name", "is_odd"),
    [
        ("bare", lambda seen: set(seen["names"]) <= {"PATH", "HOME", "LC_CTYPE", *OF_TESTS}),
        ("lang", lambda seen: seen["lang"] == "C"),
        ("tz", lambda seen: seen["west"] % 3600 == 900),
        ("tmpdir", lambda seen: " " in seen["path"] and not seen["path"].isascii()),
        ("umask", lambda seen: seen["mode"] == 0o600),
        ("files", lambda seen: seen["files"] == 64),
        ("ignored", lambda seen: seen["ignored"] == [True, True]),
        ("user", lambda seen: seen["user"] != 0 and not (os.geteuid() == 0 and seen["may_write"])),
    ],
)
def test_an_environment_is_what_it_says_alone_and_together(name, is_odd):
    assert name in NAMES
    if name == "user":
        needs_to_be_nobody()
    assert is_odd(seen_in(name))
    if name != "bare":  # the others set variables of their own
        needs_to_be_nobody()
        assert is_odd(seen_in("together"))


def needs_to_be_nobody():
    possible = ["unshare", "-m", "true"]
    if os.geteuid() == 0 and not (
        shutil.which("setpriv") and subprocess.run(possible, check=False).returncode == 0
    ):
        pytest.skip("this machine lets root be nobody else")


def test_make_runs_what_is_chosen_and_hands_on_arguments():
    command = ["make", "--dry-run", "test-odd", "ODD=lang tz", "ARGS=tests/core -k x"]
    said = subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, text=True).stdout
    assert re.findall(r"tools/odd.py (\w+)", said) == ["lang", "tz"]
    assert said.count("tests/core -k x") == 2
