# SPDX-License-Identifier: Apache-2.0
"""The pre-commit hook: its entry runs where there is no torch, and fails on a bug."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
HOOK = (REPOSITORY / ".pre-commit-hooks.yaml").read_text("utf-8")
WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None  # importing it raises ModuleNotFoundError
from truestep.cli.main import main
main()
"""
FAULTY = """
import torch
net = torch.nn.Linear(2, 2)
torch.nn.functional.cross_entropy(net(torch.zeros(1, 2)).softmax(1), torch.zeros(1).long())
"""


def entry(*arguments, cwd):
    command = shlex.split(re.search(r"^\s*entry: (.+)$", HOOK, re.MULTILINE)[1])
    assert command[0] == "truestep"
    path = os.environ.get("PYTHONPATH", "") if os.environ.get("TRUESTEP_TEST_WHEEL") else REPOSITORY / "src"
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, *command[1:], *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_entry_runs_without_torch_and_fails_on_a_bug(tmp_path):
    (tmp_path / "bad.py").write_text(FAULTY, "utf-8")
    (tmp_path / "good.py").write_text(FAULTY.replace(".softmax(1)", ""), "utf-8")
    bad, good = entry("bad.py", "good.py", cwd=tmp_path), entry("good.py", cwd=tmp_path)
    assert (bad.returncode, good.returncode) == (1, 0), bad.stderr + good.stderr
    assert bad.stdout.startswith("bad.py\n  4:")
    assert "good.py" not in bad.stdout


def test_the_hook_is_named_and_typed():
    keys = set(re.findall(r"^[- ] (\w+):", HOOK, re.MULTILINE))
    assert {"id", "name", "entry", "language", "types_or"} <= keys
