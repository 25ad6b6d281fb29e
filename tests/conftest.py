# SPDX-License-Identifier: Apache-2.0
"""What every test must leave as it found it: threads, environment variables, child processes, hooks."""

import os
import signal
import sys
import threading

import psutil
import pytest

# pytest's own, and one that torch sets when an optimizer is first used
NOT_OURS = ("PYTEST_CURRENT_TEST", "TORCHINDUCTOR_CACHE_DIR")
WATCHED_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


def _left_behind() -> dict[str, object]:
    return {
        "environment": {key: value for key, value in os.environ.items() if key not in NOT_OURS},
        "threads": {thread.name for thread in threading.enumerate() if not thread.daemon},
        "excepthook": sys.excepthook,
        "signals": {number: signal.getsignal(number) for number in WATCHED_SIGNALS},
        "directory": os.getcwd(),  # noqa: PTH109
    }


@pytest.fixture(autouse=True)
def nothing_leaks(request):
    before = _left_behind()
    children = {child.pid for child in psutil.Process().children()}
    yield
    after = _left_behind()
    changed = {name: (before[name], after[name]) for name in before if before[name] != after[name]}
    assert not changed, f"{request.node.nodeid} leaked: {changed}"
    stray = [
        child
        for child in psutil.Process().children()
        if child.pid not in children and child.is_running() and child.status() != psutil.STATUS_ZOMBIE
    ]
    # multiprocessing's resource tracker lives as long as its parent, by design
    stray = [
        child
        for child in stray
        if not any("resource_tracker" in part or "forkserver" in part for part in child.cmdline())
    ]
    assert not stray, f"{request.node.nodeid} left processes: {stray}"
    torch = sys.modules.get("torch")
    if torch is not None and torch.distributed.is_available():
        assert not torch.distributed.is_initialized(), f"{request.node.nodeid} left a process group"
