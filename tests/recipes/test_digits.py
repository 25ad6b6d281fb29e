# SPDX-License-Identifier: Apache-2.0
"""The digits recipe from the command line: its bar, its report, and going on."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

pytest.importorskip("sklearn")


def train(*arguments, cwd):
    command = [sys.executable, "-m", "truestep", "train", "digits", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, timeout=200)


def accuracies(folder):
    lines = map(json.loads, (folder / "metrics.jsonl").read_text("utf-8").splitlines())
    return [line["values"]["accuracy"] for line in lines if "accuracy" in line["values"]]


def test_five_seeds_name_at_least_98_5_per_cent_of_the_test_images(tmp_path):
    program = """
import statistics, sys
from pathlib import Path
from truestep.recipes.loading import find, parsed, read_recipe, start
for seed in range(5):
    start(parsed(read_recipe(find("digits")), ["--seed", str(seed), "--out", f"runs/{seed}"]))
"""
    result = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
    )
    assert result.returncode == 0, result.stderr
    last = [accuracies(tmp_path / "runs" / str(seed))[-1] for seed in range(5)]
    assert len(set(last)) > 1  # five runs, not one run five times
    assert sum(last) / 5 >= 0.985


def test_a_run_says_where_its_report_is_and_gets_a_new_folder_each_time(tmp_path):
    for _ in range(2):
        result = train("--epochs", "1", cwd=tmp_path)
        assert result.returncode == 0, result.stderr
        path = result.stdout.strip().removeprefix("Report: ")
        assert "accuracy" in (tmp_path / path).read_text("utf-8")
        assert "\x1b" not in result.stderr
        assert "epoch 1/1  step 23" in result.stderr
    assert len(list((tmp_path / "runs" / "digits").iterdir())) == 2


def test_the_same_seed_gives_the_same_run_and_another_seed_another(tmp_path):
    for name, seed in (("a", "3"), ("b", "3"), ("c", "4")):
        assert train("--epochs", "2", "--seed", seed, "--out", name, cwd=tmp_path).returncode == 0
    losses = {}
    for name in "abc":
        lines = map(json.loads, (tmp_path / name / "metrics.jsonl").read_text("utf-8").splitlines())
        losses[name] = [line["values"].get("loss") for line in lines]
    assert losses["a"] == losses["b"] != losses["c"]


def test_a_folder_goes_on_only_with_its_own_settings(tmp_path):
    assert train("--epochs", "1", "--out", "run", cwd=tmp_path).returncode == 0
    assert train("--epochs", "1", "--out", "run", "--resume", "must", cwd=tmp_path).returncode == 0
    other = train("--epochs", "1", "--lr", "0.5", "--out", "run", cwd=tmp_path)
    assert other.returncode == 2
    assert "lr: 0.003 there, 0.5 now" in other.stderr
    assert train("--epochs", "1", "--out", "run", "--resume", "never", cwd=tmp_path).returncode == 2


def test_what_can_not_start_leaves_no_folder(tmp_path):
    result = train("--precision", "bf61", cwd=tmp_path)
    assert result.returncode == 2
    assert "bf61" in result.stderr
    assert list(tmp_path.rglob("*/*/*")) == []


def test_ctrl_c_saves_says_where_and_exits_130(tmp_path):
    command = [sys.executable, "-m", "truestep", "train", "digits", "--epochs", "1000", "--out", "run"]
    with subprocess.Popen(
        command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, env={**os.environ}
    ) as process:
        file = tmp_path / "run" / "metrics.jsonl"
        while process.poll() is None and not (file.exists() and file.stat().st_size):
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "stopped as asked" in said
    assert (tmp_path / "run" / "report.html").exists()
