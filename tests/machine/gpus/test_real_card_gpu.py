# SPDX-License-Identifier: Apache-2.0
"""On a real card: every value against nvidia-smi's, torch's memory, CUDA's moment of reading its variables.

Written without a card at hand: these tests have never run.
"""

import csv
import io
import os
import shutil
import subprocess
import sys
import time

import pytest

import truestep as ts

pytestmark = pytest.mark.gpu

MIB = 2**20
# field of a card: (nvidia-smi's query, how its text becomes ours, how far two readings may lie apart)
QUERIES = {
    "index": ("index", int, 0),
    "name": ("name", str, None),
    "uuid": ("uuid", str, None),
    "bus_id": ("pci.bus_id", str, None),
    "compute_capability": ("compute_cap", str, None),
    "fan_percent": ("fan.speed", float, 10),
    "temperature_celsius": ("temperature.gpu", float, 5),
    "performance_state": ("pstate", lambda text: int(text.removeprefix("P")), 8),
    "persistence": ("persistence_mode", lambda text: text == "Enabled", None),
    "power_watts": ("power.draw.instant", float, 100),
    "power_limit_watts": ("enforced.power.limit", float, 1),
    "display_active": ("display_active", lambda text: text == "Enabled", None),
    "memory_total_bytes": ("memory.total", lambda text: int(text) * MIB, MIB),
    "memory_reserved_bytes": ("memory.reserved", lambda text: int(text) * MIB, 4 * MIB),
    "memory_used_bytes": ("memory.used", lambda text: int(text) * MIB, 64 * MIB),
    "memory_free_bytes": ("memory.free", lambda text: int(text) * MIB, 64 * MIB),
    "utilization_percent": ("utilization.gpu", float, 100),
    "memory_utilization_percent": ("utilization.memory", float, 100),
    "ecc_enabled": ("ecc.mode.current", lambda text: text == "Enabled", None),
    "ecc_uncorrected_errors": ("ecc.errors.uncorrected.volatile.total", int, 0),
    "compute_mode": ("compute_mode", lambda text: text.lower().replace(" ", "_"), None),
    "mig_enabled": ("mig.mode.current", lambda text: text == "Enabled", None),
}


@pytest.fixture(scope="module", autouse=True)
def cards():
    report = ts.gpus()
    if not report.gpus:
        pytest.skip(f"no card: {report.error}")
    if shutil.which("nvidia-smi") is None:
        pytest.skip("no nvidia-smi to compare with")
    return report.gpus


def asked(*queries):
    command = ["nvidia-smi", f"--query-gpu={','.join(queries)}", "--format=csv,noheader,nounits"]
    text = subprocess.check_output(command, text=True)
    return [[cell.strip() for cell in row] for row in csv.reader(io.StringIO(text))]


@pytest.mark.parametrize("field", QUERIES)
def test_each_value_is_nvidia_smis(field):
    query, convert, apart = QUERIES[field]
    for card, (text,) in zip(ts.gpus().gpus, asked(query), strict=True):
        ours = getattr(card, field)
        if text in ("[N/A]", "N/A", "[Not Supported]"):
            assert ours is None, card.unavailable
        elif apart is None:
            assert ours == convert(text)
        else:
            assert abs(ours - convert(text)) <= apart


def test_the_drivers_versions_are_nvidia_smis():
    ((version,), *_) = asked("driver_version")
    shown = subprocess.check_output(["nvidia-smi"], text=True)
    report = ts.gpus()
    assert report.driver_version == version
    assert f"CUDA Version: {report.cuda_version}" in shown


def test_the_lines_of_nvidia_smi_minus_l():
    ours = subprocess.check_output([sys.executable, "-m", "truestep", "gpus", "--format", "uuid"], text=True)
    assert subprocess.check_output(["nvidia-smi", "-L"], text=True) == ours


WORK = """
import sys, time, torch
held = torch.ones(2**28, device="cuda")
torch.cuda.synchronize()
print("up", flush=True)
time.sleep(60)
"""


def test_a_process_that_takes_memory_is_seen_with_it():
    before = ts.gpus().gpus[0].memory_used_bytes
    with subprocess.Popen([sys.executable, "-c", WORK], stdout=subprocess.PIPE, text=True) as worker:
        try:
            assert worker.stdout.readline() == "up\n"
            report = ts.gpus()
            assert report.gpus[0].memory_used_bytes - before >= 2**30
            if not report.pids_of_host:
                mine = {one.pid: one for one in report.gpus[0].processes}
                assert (
                    mine[worker.pid].memory_used_bytes is None or mine[worker.pid].memory_used_bytes >= 2**30
                )
        finally:
            worker.kill()


LATE = """
import torch, truestep as ts
{first}
try:
    print("picked", *ts.use_gpus().uuids, torch.cuda.device_count())
except ts.TruestepError as error:
    print("late:", error)
"""


@pytest.mark.parametrize(
    ("first", "said"),
    [
        ("", "picked"),
        ("torch.cuda.is_available()", "late: CUDA has been started already"),
        ("torch.cuda.device_count()", "late: CUDA has been started already"),
        ("torch.zeros(1, device='cuda')", "late: torch has started CUDA already"),
    ],
)
def test_use_gpus_knows_when_it_is_too_late(first, said, tmp_path):
    environment = {**os.environ, "TRUESTEP_GPU_LOCKS": str(tmp_path / "locks")}
    output = subprocess.check_output(
        [sys.executable, "-c", LATE.format(first=first)], text=True, env=environment
    )
    assert output.startswith(said)


def test_a_picked_card_is_the_one_that_torch_then_uses(tmp_path, cards):
    environment = {**os.environ, "TRUESTEP_GPU_LOCKS": str(tmp_path / "locks")}
    code = "import torch; print(f'GPU-{torch.cuda.get_device_properties(0).uuid}')"
    for card in cards:
        command = ["gpus", "run", "--only", card.uuid, "--", sys.executable, "-c", code]
        output = subprocess.check_output(
            [sys.executable, "-m", "truestep", *command], text=True, env=environment
        )
        assert output.strip() == card.uuid


def test_freeing_gives_the_cache_back_and_counts_what_graphs_keep():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this torch sees no card")
    held = torch.ones(2**26, device="cuda")
    cached = torch.ones(2**27, device="cuda")
    del cached
    report = ts.free_memory()
    before, after = report.before.devices[0], report.after.devices[0]
    assert before.reserved_bytes - after.reserved_bytes >= 2**29
    assert after.allocated_bytes >= held.nbytes
    assert any(one.storage_bytes == held.nbytes and one.device == "cuda:0" for one in report.tensors)
    weight = torch.ones(2**20, device="cuda", requires_grad=True)
    loss = (weight.exp().exp()).sum()  # autograd keeps both results; Python sees neither
    assert ts.free_memory().unseen_bytes >= 2 * 2**22
    del loss


def test_the_environment_sees_card_and_driver():
    report = ts.environment()
    names = {verdict.name: verdict.status for verdict in report.verdicts}
    assert names["driver_runs"] == "pass"
    if report.machine.torch and report.machine.torch.cuda:
        torch = pytest.importorskip("torch")
        assert list(report.machine.torch.architectures) == torch.cuda.get_arch_list()
        assert report.machine.torch.cuda_available == torch.cuda.is_available()
        assert report.machine.torch.cudnn_version.replace(".", "") in str(torch.backends.cudnn.version())


def test_reading_every_card_is_quick_enough_to_watch(cards):
    start = time.perf_counter()
    ts.gpus()
    assert time.perf_counter() - start < 2 * len(cards)
