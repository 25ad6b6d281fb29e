# SPDX-License-Identifier: Apache-2.0
"""`use_gpus` sets what CUDA reads once, and refuses when that is too late."""

import shutil
import subprocess

import pytest

DRIVER = """
int cuInit(unsigned flags) { return flags; }
static int started;
int start(void) { return started = 1; }
int cuDeviceGetCount(int *count) { *count = 1; return started ? 0 : 3; }
"""


@pytest.fixture
def driver(machine, tmp_path):
    """Put a stand-in of the CUDA driver's library beside the machine's NVML."""
    folder = tmp_path / "cuda"
    folder.mkdir()
    source = folder / "driver.c"
    source.write_text(DRIVER)
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", folder / "libcuda.so.1", source], check=True)
    path = f"{machine.library.parent}:{folder}"
    return {**machine.environment, "LD_LIBRARY_PATH": path}


def test_it_sets_the_variables_and_holds_the_cards(machine):
    machine.has(machine.card(memory=f"{2**30},0,{2**30}"), machine.card())
    code = """
import os, subprocess, sys, truestep as ts
choice = ts.use_gpus(1, free_memory="20GiB")
print(os.environ["CUDA_VISIBLE_DEVICES"], os.environ["CUDA_DEVICE_ORDER"], choice.uuids)
print(subprocess.run([sys.executable, "-m", "truestep", "gpus", "pick", "--only", "1"]).returncode)
"""
    result = machine.python(code)
    uuid = "GPU-00000001-1111-2222-3333-444444444444"
    assert f"{uuid} PCI_BUS_ID ('{uuid}',)\n" in result.stdout
    assert "4\n" in result.stdout.splitlines(keepends=True)[-1]


def test_it_raises_with_the_nearest_miss_and_sets_nothing(machine):
    machine.has(machine.card())
    code = """
import os, truestep as ts
try:
    ts.use_gpus(2)
except ts.TruestepError as error:
    print(error, "CUDA_VISIBLE_DEVICES" in os.environ)
"""
    output = machine.python(code).stdout
    assert "2 card(s) wanted, 1 of 1 meet the conditions" in output
    assert output.rstrip().endswith("False")


STARTED = """
import ctypes, truestep as ts
library = ctypes.CDLL("libcuda.so.1")
{start}
try:
    ts.use_gpus()
    print("picked")
except ts.TruestepError as error:
    print(error)
"""


def test_a_driver_that_is_loaded_but_not_started_is_early_enough(machine, driver):
    machine.has(machine.card())
    assert machine.python(STARTED.format(start=""), env=driver).stdout == "picked\n"


def test_a_started_driver_is_too_late(machine, driver):
    machine.has(machine.card())
    output = machine.python(STARTED.format(start="library.start()"), env=driver).stdout
    assert "CUDA has been started already" in output
    assert "Call ts.use_gpus() first" in output


def test_a_torch_that_has_started_cuda_is_too_late(machine):
    machine.has(machine.card())
    code = """
import sys, types, truestep as ts
torch = types.ModuleType("torch")
torch.cuda = types.SimpleNamespace(is_initialized=lambda: True)
sys.modules["torch"] = torch
try:
    ts.use_gpus()
except ts.TruestepError as error:
    print(error)
"""
    assert "torch has started CUDA already" in machine.python(code).stdout


def test_a_second_call_gives_the_first_ones_cards_back(machine):
    machine.has(machine.card(), machine.card())
    code = """
import os, truestep as ts
os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"
print(ts.use_gpus(2).uuids == ts.use_gpus(2).uuids, len(ts.use_gpus(1).uuids))
try:
    ts.use_gpus(3)
except ts.TruestepError:
    print(os.environ["CUDA_VISIBLE_DEVICES"])
"""
    assert machine.python(code).stdout.split() == ["True", "1", "0,1"]
