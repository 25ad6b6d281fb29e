# SPDX-License-Identifier: Apache-2.0
"""The processors of this machine."""

import os


def usable_processors() -> int:
    """Return how many processors this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
