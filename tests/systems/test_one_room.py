# SPDX-License-Identifier: Apache-2.0
"""What differs between systems is asked in `core/system.py` alone, and between devices in `core/accelerator.py`."""

import re
from pathlib import Path

import truestep

ROOT = Path(truestep.__file__).parent
ASKS = re.compile(
    r"sys\.platform|os\.name\b|platform\.system\(|import (fcntl|msvcrt|resource|pwd|grp|termios)\b|[\"'(/]/proc/"
)
REASONS = {
    "core/system.py": "the room",
    "core/kept.py": "where each system keeps caches",
    "doctor/forks/": "of Linux alone: its kernel seals what is forked",
    "doctor/processes.py": "forks where that is safe",
    "checkpoints/new_memory.py": "calls of Linux's C library, by their numbers",
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
    "engine/forwarding.py": "the names of methods that move a module, which are refused; and whether it is where it would go",
    "engine/data/memory.py": "whether two devices are the same",
    "run/loop_random.py": "the name under which a device's stream is saved",
    "run/endings.py": "the names of methods that move a tensor",
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
