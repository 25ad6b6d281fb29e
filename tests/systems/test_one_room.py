# SPDX-License-Identifier: Apache-2.0
"""What differs between systems is asked in `core/os_specific.py` alone, and between devices in `core/device_specific.py`."""

import re
from pathlib import Path

import truestep

ROOT = Path(truestep.__file__).parent
ASKS = re.compile(
    r"sys\.platform|os\.name\b|platform\.system\(|import (fcntl|msvcrt|resource|pwd|grp|termios)\b|[\"'(/]/proc/"
)
REASONS = {
    "core/os_specific.py": "the room",
    "core/disk_cache.py": "where each system keeps caches",
    "doctor/forks/": "of Linux alone: its kernel seals what is forked",
    "doctor/parallel_work.py": "forks where that is safe",
    "checkpoints/memory_allocation.py": "calls of Linux's C library, by their numbers",
    "run/launching/tether.py": "is run as a script, so that nothing is imported",
    "machine/": "describes the machine, system by system",
}


def test_no_other_file_asks_which_system_it_is():
    found = {
        str(path.relative_to(ROOT)) for path in ROOT.rglob("*.py") if ASKS.search(path.read_text("utf-8"))
    }
    assert {path for path in found if not path.startswith(tuple(REASONS))} == set()
    assert all(any(path.startswith(place) for path in found) for place in REASONS)


DEVICES = re.compile(
    r"torch\.(cuda|mps|xpu|accelerator|Event|Stream)\b|\.is_(cuda|mps|xpu)\b|pin_memory=True|"
    r"\.type (==|!=|in|not in) |[\"'](cuda|mps|xpu|gpu)[\"']"
)
ROOMS = ("engine", "run", "checkpoints", "model")
DEVICE_REASONS = {
    "engine/name_forwarding.py": "the names of methods that move a module, which are refused; and whether it is where it would go",
    "engine/data/in_memory_tensors.py": "whether two devices are the same",
    "run/loop_random.py": "the name under which a device's stream is saved",
    "run/loop_end_detection.py": "the names of methods that move a tensor",
    "run/device.py": "what a user may have written for a device",
}


def test_no_other_file_asks_which_device_it_is():
    found = {
        str(path.relative_to(ROOT))
        for room in ROOMS
        for path in (ROOT / room).rglob("*.py")
        if DEVICES.search(path.read_text("utf-8"))
    }
    assert found == set(DEVICE_REASONS)
