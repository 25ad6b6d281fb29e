# SPDX-License-Identifier: Apache-2.0
"""A training that is killed at any moment, however often, ends where the undisturbed one does."""

from pathlib import Path

import pytest
from torture import kills


def check(folder: Path, count: int, launch: kills.Launch = kills.forked) -> kills.Report:
    report = kills.torture(folder, count, launch=launch)
    assert report.kills >= count
    assert report.wrong_ends == []
    assert report.moments_without_a_checkpoint == []
    return report


def test_fifty_kills(quick):
    check(quick, 50)


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
def test_ten_thousand_kills(tmp_path):
    report = check(tmp_path, 10_000)
    assert {"writing", "deleting", "elsewhere"} <= set(report.kills_by_phase)


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
def test_two_hundred_kills_of_fresh_interpreters(tmp_path):
    check(tmp_path, 200, kills.fresh)


def test_a_training_that_keeps_no_randomness_is_caught(quick, monkeypatch):
    monkeypatch.setattr(kills.torch, "set_rng_state", lambda state: None)
    assert kills.torture(quick, 20).wrong_ends
