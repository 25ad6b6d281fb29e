# SPDX-License-Identifier: Apache-2.0
"""What differs between systems is asked in `core/system.py` alone."""

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
