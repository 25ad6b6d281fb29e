# SPDX-License-Identifier: Apache-2.0
"""Whole small programs: each ends with the bits of its hand-written loop, also when it is killed again and again."""

import importlib
import json
import os
import signal
from pathlib import Path

import pytest
import torch
from support import warm

HERE = Path(__file__).parent
KILLED_AFTER = {
    "ppo": (9, 9, 14),
    "dqn": (1, 14, 20),
    "words": (3, 5, 5),
    "gan": (3, 6, 3),
    "gpt": (2, 5, 4),
    "simclr": (1, 6, 4),
    "diffusion": (3, 4, 6),
}
"""After how many of their updates one process after the other is killed."""


@pytest.fixture(params=KILLED_AFTER)
def program(request, monkeypatch):
    monkeypatch.syspath_prepend(HERE)
    return importlib.import_module(request.param)


def test_a_program_ends_with_the_bits_of_its_hand_written_loop(program, tmp_path):
    expected = program.by_hand()
    found = program.with_a_run(tmp_path / "run", lambda _: None)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(found, expected, strict=True))


def run(script, name, killed_after, folder):
    return warm.run(script, name, cwd=folder, env=os.environ | {"UPDATES": str(killed_after)})


def test_a_program_that_is_killed_again_and_again_ends_with_the_same_bits(program, tmp_path):
    name, script = program.__name__, HERE / "running.py"
    for killed_after in KILLED_AFTER[name]:
        ended = run(script, name, killed_after, tmp_path)
        assert ended.returncode == -signal.SIGKILL, ended.stderr
    ended = run(script, name, 0, tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert "going on from" in ended.stderr
    assert "the rest is bit-identical, if the loop keeps nothing in variables or attributes" in ended.stderr
    expected = [tensor.detach().flatten().double().tolist() for tensor in program.by_hand()]
    assert json.loads(ended.stdout) == expected


def test_another_source_of_the_program_is_named_and_no_bits_are_promised(tmp_path):
    for path in ("running.py", "words.py"):
        (tmp_path / path).write_bytes((HERE / path).read_bytes())
    assert run("running.py", "words", 6, tmp_path).returncode == -signal.SIGKILL
    words = tmp_path / "words.py"
    words.write_text(words.read_text("utf-8").replace("lr=0.5", "lr=2 / 4"), "utf-8")
    ended = run("running.py", "words", 0, tmp_path)
    assert "what the code now makes of it, not what it would have been (words.py has changed)" in ended.stderr
