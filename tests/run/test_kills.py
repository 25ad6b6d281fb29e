# SPDX-License-Identifier: Apache-2.0
"""A whole run that is killed by SIGKILL at any moment, however often, ends with the bits of one that never was."""

from pathlib import Path

import pytest
import torch
from support.trainings import Training, train
from torture import kills, run_kills

import truestep as ts


def whole_run(directory: Path) -> str:
    """Two learners, dropout, augmentation, EMA, a split batch, saves in the background after every second batch."""
    torch.set_num_threads(1)
    saving = ts.Saving(every_steps=2, every_seconds=0.05, epoch_seconds=0.0, best="accuracy", keep_every=8)
    return train(
        directory, Training(augmentation="numpy", micro_batch=3, ema=True, two_learners=True, saving=saving)
    )


def check(folder: Path, count: int, *, seed: int = 0, launch: kills.Launch = kills.forked) -> None:
    report = kills.torture(folder, count, seed=seed, trainer=whole_run, launch=launch, where="checkpoints")
    print(f"{report.kills} kills of {report.runs} runs")
    assert report.wrong_ends == []
    assert report.moments_without_a_checkpoint == []
    assert report.kills >= count


def test_two_kills(tmp_path):
    check(tmp_path, 2)


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("seed", range(10))
def test_ten_thousand_kills_of_whole_runs(tmp_path, seed):
    check(tmp_path, 1_000, seed=seed)


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
def test_two_hundred_kills_of_whole_runs_in_fresh_interpreters(tmp_path):
    check(tmp_path, 200, launch=kills.fresh)


def check_with_workers(folder: Path, count: int, runs: int, seed: int) -> None:
    kills.load_all(whole_run, folder / "loaded")
    report = run_kills.torture(folder, count, runs=runs, seed=seed)
    print(f"{report.kills} disturbances of {report.runs} runs: {report.by_way} {report.by_phase}")
    assert report.wrong_ends == []
    assert report.foreign_checkpoints == []
    assert report.kills >= count


def test_two_disturbances_of_a_run_with_workers(tmp_path):
    check_with_workers(tmp_path, 2, 1, seed=4)


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("seed", range(10))
def test_three_thousand_disturbances_of_three_hundred_runs_with_workers(tmp_path, seed):
    check_with_workers(tmp_path, 300, 30, seed=seed)
