# SPDX-License-Identifier: Apache-2.0
"""Claims hold between real processes, end with their holder, and can't be forged into a denial."""

import json
import os
import signal
import stat
import subprocess
import sys
import time

import pytest

from truestep.core.errors import GpuError
from truestep.machine.gpus import claims as module
from truestep.machine.gpus.claims import CardClaims

HOLD = """
import sys, time
from pathlib import Path
from truestep.machine.gpus.claims import CardClaims
descriptor = CardClaims(Path(sys.argv[1])).hold(sys.argv[2])
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture
def claims(tmp_path):
    return CardClaims(tmp_path / "claims")


@pytest.fixture
def holding(claims):
    """Start processes that hold a card; they are gone after the test."""
    started = []

    def start(uuid):
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, claims.folder, uuid], stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        assert process.stdout.readline() == "held\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_a_card_is_free_until_somebody_holds_it_and_free_again_when_they_are_killed(claims, holding):
    assert claims.holder("GPU-1") is None
    process = holding("GPU-1")
    assert f"process {process.pid}" in claims.holder("GPU-1")
    with pytest.raises(GpuError, match="was claimed by another process"):
        claims.hold("GPU-1")
    assert claims.holder("GPU-2") is None
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert claims.holder("GPU-1") is None


def test_a_hold_lives_as_long_as_its_descriptor(claims):
    descriptor = claims.hold("GPU-1")
    assert f"process {os.getpid()}" in claims.holder("GPU-1")
    os.close(descriptor)
    assert claims.holder("GPU-1") is None


def test_a_reservation_outlives_its_process_and_then_ends(claims):
    claims.reserve("GPU-1", 0.3)
    assert "more" in claims.holder("GPU-1")
    deadline = time.monotonic() + 20
    while claims.holder("GPU-1") and time.monotonic() < deadline:
        time.sleep(0.02)
    assert claims.holder("GPU-1") is None


@pytest.mark.parametrize(
    "content",
    ['{"who": "x", "until": 1e18}', '{"until": "soon"}', "[]", "no json", "", "\0" * 100, '{"until": NaN}'],
)
def test_a_claim_that_nobody_honest_wrote_claims_nothing(claims, content):
    (claims.folder / "GPU-1.claim").write_text(content)
    assert claims.holder("GPU-1") is None


def test_the_files_are_for_all_users(claims):
    claims.reserve("GPU-1", 60)
    assert stat.S_IMODE(claims.folder.stat().st_mode) == 0o1777
    assert stat.S_IMODE((claims.folder / "GPU-1.claim").stat().st_mode) == 0o666


def test_a_link_in_the_folder_is_not_followed(claims, tmp_path):
    target = tmp_path / "precious"
    target.write_text("precious")
    (claims.folder / "GPU-1.claim").symlink_to(target)
    with pytest.raises(GpuError, match="can't be opened"):
        claims.hold("GPU-1")
    assert target.read_text() == "precious"
    assert "can't be read" in claims.holder("GPU-1")


def test_a_file_in_the_place_of_the_folder_is_said(tmp_path):
    (tmp_path / "claims").write_text("")
    with pytest.raises(GpuError, match="is no folder"):
        CardClaims(tmp_path / "claims")


def test_one_chooses_at_a_time_and_a_stuck_one_is_named(claims, monkeypatch):
    monkeypatch.setattr(module, "SELECTING_TIMEOUT_SECONDS", 0.1)
    with (
        claims.selection_lock(),
        pytest.raises(GpuError, match="has been choosing cards"),
        claims.selection_lock(),
    ):
        pass
    with claims.selection_lock():
        pass


def test_who_holds_is_written_as_json(claims):
    descriptor = claims.hold("GPU-1")
    claim = json.loads((claims.folder / "GPU-1.claim").read_text())
    os.close(descriptor)
    assert str(os.getpid()) in claim["who"]


def test_a_folder_that_can_not_be_made_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(GpuError, match="TRUESTEP_GPU_LOCKS"):
        CardClaims(tmp_path / "file" / "claims")
