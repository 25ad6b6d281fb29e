# SPDX-License-Identifier: Apache-2.0
"""Tests that need a GPU, on the stand-in of two cards: their first run on a real one is to find nothing that this could show."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
LEFT = {
    "engine/test_memory_gpu.py": "it fills a card's memory",
    "run/test_divided_gpu.py": "NCCL, which the stand-in has none of",
    "engine/strategies/test_split_gpu.py": "NCCL, too; over gloo it is tried in test_card_distributed.py",
    "machine/gpus/test_real_card_gpu.py": "it asks the driver",
}
WORKERS = "engine/data/test_transfer_gpu.py::test_copies_ahead_are_whole[2]"  # the stand-in is in one process
FILES = sorted({path.relative_to(TESTS).as_posix() for path in TESTS.rglob("test_*_gpu.py")} - LEFT.keys())


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("file", FILES)
def test_what_needs_a_gpu_runs_on_the_stand_in(file):
    words = [sys.executable, "-m", "support.on_card", str(TESTS / file), "--deselect", f"tests/{WORKERS}"]
    paths = os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH", "")]))
    done = subprocess.run(
        words,
        cwd=TESTS.parent,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=850,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout
