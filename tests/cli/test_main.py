# SPDX-License-Identifier: Apache-2.0
"""The command itself, whichever of its commands is called."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FULL = Path("/dev/full")


@pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("arguments", [["--version"], ["checks"], ["env", "--json"]])
def test_a_full_disk_ends_with_one_message_and_1(arguments):
    with FULL.open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "truestep", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ,
            check=False,
            timeout=60,
        )
    assert ended.returncode == 1
    assert ended.stderr.startswith("truestep: the disk is full")
    assert ended.stderr.count("\n") == 1
