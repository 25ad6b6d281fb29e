# SPDX-License-Identifier: Apache-2.0
"""No file of a run, and no line that it says, holds a secret in clear; an edit of one is still seen."""

import json
import os

import pytest
from support import warm

SECRET = "Hunter2-of-the-user"
PROGRAM = """
import argparse, os, sys
import torch, truestep as ts

parser = argparse.ArgumentParser()
for option in ("--api-key", "-p", "-k", "--data", "--config-key"):
    parser.add_argument(option, default="")
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--wait", action="store_true")
arguments = parser.parse_args()

class Options:
    def __init__(self, key):
        self.api_key, self.url = key, f"https://{key}@host/x" if key else ""

class Net(torch.nn.Linear):
    def __init__(self):
        super().__init__(2, 1)
        key = os.environ.get("ATTRIBUTE", "")
        self.api_key, self.options = key, Options(key)

class Clip(ts.ClipNorm):
    pass

run = ts.Run("run", progress=False, config={
    "api_key": arguments.config_key, "url": arguments.data, "deep": [{"password": arguments.config_key}],
})
if arguments.wait:
    print("ready", flush=True)
    sys.stdin.read()
net = run.learner(Net(), lambda p: torch.optim.SGD(p, lr=0.1))
data = run.data([(torch.ones(2), torch.ones(1))] * 8, batch_size=4)
for epoch in run.epochs(arguments.epochs):
    for batch in run.batches(data):
        net.update(lambda batch: (net(batch[0]) - batch[1]).square().mean(1), batch)
    run.log(accuracy=0.5)
"""
WORDS = (
    "--api-key", SECRET, "-p", SECRET, "-k", SECRET, "--data", f"s3://me:{SECRET}@host/data",
    "--config-key", SECRET,
)  # fmt: skip


@pytest.fixture
def start(tmp_path):
    (tmp_path / "train.py").write_text(PROGRAM)

    def started(*words, attribute=""):
        environment = os.environ | {"ATTRIBUTE": attribute, "PYTHONPATH": warm.paths()}
        return warm.run("train.py", *words, cwd=tmp_path, env=environment)

    return started


def files_with(text, folder):
    found = [path for path in folder.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]
    return [str(path.relative_to(folder)) for path in found]


def test_no_file_of_a_run_holds_a_secret_and_an_edit_of_one_is_seen(start, tmp_path):
    first = start(*WORDS, attribute=SECRET)
    assert first.returncode == 0, first.stderr
    run = tmp_path / "run"
    assert files_with(SECRET, run) == []
    assert SECRET not in first.stderr + first.stdout
    assert (run / "checkpoints/.lock").read_bytes() == b""
    assert (run / ".salt").stat().st_mode & 0o777 == 0o600
    assert (run / ".salt").read_text() not in "".join(
        (run / name).read_text() for name in ("config.json", "environment.json", "report.html")
    )
    page = (run / "report.html").read_text()
    assert "(hidden)" in page
    assert "***" not in page
    shown = json.loads((run / "config.json").read_text())["config"]["api_key"]
    assert len(shown) >= 3 + 16

    again = start(*WORDS, "--epochs", "2", attribute=SECRET)
    assert again.returncode == 0, again.stderr
    [line] = [line for line in again.stderr.splitlines() if "going on from" in line]
    assert "has --epochs 2, before nothing" in line
    assert "api" not in line

    edited = start(*WORDS, "--epochs", "3", attribute="Other-Secret")
    assert "api_key='***" in edited.stderr
    assert "Other-Secret" not in edited.stderr
    assert files_with("Other-Secret", run) == []

    refused = start(*WORDS[:-1], "Other-Secret", "--epochs", "3")
    assert "config.api_key: '***" in refused.stderr
    assert "Other-Secret" not in refused.stderr


def test_a_refused_process_says_no_secret_of_the_one_at_work(start, tmp_path):
    waiting, ready = os.pipe(), os.pipe()
    process = warm.Process("train.py", *WORDS, "--wait", cwd=tmp_path, stdin=waiting[0], stdout=ready[1])
    try:
        assert os.read(ready[0], 1) == b"r"
        refused = start(*WORDS)
        assert f"in use by process {process.pid}" in refused.stderr
        assert "--api-key (hidden)" in refused.stderr
        assert SECRET not in refused.stderr
        assert files_with(SECRET, tmp_path / "run") == []
    finally:
        for each in (*waiting, *ready):
            os.close(each)
    assert process.wait() == 0, process.error


def test_without_its_salt_a_run_goes_on_and_compares_no_hidden_values(start, tmp_path):
    assert start(*WORDS).returncode == 0
    (tmp_path / "run/.salt").unlink()
    for epochs in ("2", "3"):
        again = start(*WORDS, "--epochs", epochs)
        assert again.returncode == 0, again.stderr
        assert "api" not in again.stderr


def test_a_run_that_has_no_secret_keeps_no_salt(start, tmp_path):
    assert start().returncode == 0
    assert not (tmp_path / "run/.salt").exists()


def test_an_older_run_with_a_secret_in_clear_goes_on_and_hides_it(start, tmp_path):
    assert start().returncode == 0
    path = tmp_path / "run/config.json"
    kept = json.loads(path.read_text())
    kept["config"] |= {"api_key": SECRET, "deep": [{"password": SECRET}]}
    path.write_text(json.dumps(kept))
    again = start("--config-key", SECRET, "--epochs", "2")
    assert again.returncode == 0, again.stderr
    assert files_with(SECRET, tmp_path / "run") == []
