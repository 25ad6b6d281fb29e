# SPDX-License-Identifier: Apache-2.0
"""Why this process can't be forked for an experiment, asked before each fork; nothing is changed by asking."""

import os
import platform
import queue
import sys
import threading
import time
from concurrent.futures import thread as pools
from pathlib import Path
from typing import Any

import torch

from truestep.core.control_groups import free_memory
from truestep.doctor.forks.system_calls import ARCHITECTURES

_LOOKS, _LOOK_SECONDS = 10, 0.005  # for a thread to come to rest
LEAST_FREE_BYTES = 256 << 20
# Threads of Python that only wait and hold nothing that a child needs: a loader's, a queue's, a progress bar's, our own.
_HARMLESS = ("QueueFeederThread", "TMonitor", "_AsyncWriterThread", "_EventLoggerThread", "truestep-")
_HARMLESS_TARGETS = ("_pin_memory_loop",)
_REFRESHES = "_RefreshThread"  # of rich, and of Lightning's bar, which is rich's where rich is installed
_WAITS = (threading.Condition.wait.__code__, threading.Event.wait.__code__)
_AT_QUEUE = (queue.Queue.get.__code__, queue.Queue.put.__code__, pools._worker.__code__)
# Threads that are not Python's: those of OpenMP and BLAS have the process' name, torch's their own. A child that gives a task to a
# pool whose threads the fork left behind waits for ever, and is ended and reported like any other that hangs.
_HARMLESS_NATIVE = ("pt_", "PTThreadPool", "omp", "jemalloc_bg_thd")


def why_no_fork(num_bytes: int = 0) -> str | None:
    """Return in plain words why no child is forked here and now, None where one can be.

    Args:
        num_bytes: what the child will write, about.
    """
    if sys.platform != "linux" or platform.machine() not in ARCHITECTURES or not hasattr(os, "pidfd_open"):
        return f"no child can be sealed on {platform.system()} {platform.machine()}"
    started = next((name for name in ("cuda", "xpu", "mtia") if _is_accelerator_initialized(name)), None)
    if started is not None:
        way_out = "; truestep doctor --cpu runs the script without it" if started == "cuda" else ""
        return f"{started.upper()} has started, and a process that uses it can't be forked{way_out}"
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
        return "several processes train together, and a child would wait for the others"
    if threading.current_thread() is not threading.main_thread():
        return "the training runs in a thread of its own"
    if unknown := unknown_threads():
        return f"other threads run ({', '.join(unknown)}), and a child could wait for what they hold"
    needed = LEAST_FREE_BYTES + num_bytes
    if (free := free_memory_bytes()) < needed:
        return f"too little memory is free: {free >> 20} MB, and a child may need {needed >> 20} MB"
    return None


def _is_accelerator_initialized(name: str) -> bool:
    module: Any = getattr(torch, name, None)
    return bool(getattr(module, "is_initialized", lambda: False)())


def unknown_threads() -> list[str]:
    """Return the names of threads that are not known to leave a forked child alone."""
    main = threading.main_thread()
    others = [each for each in threading.enumerate() if each is not main]
    found = [each.name for each in others if not _is_harmless_thread(each) and not _is_idle_thread(each)]
    native = {each.native_id for each in threading.enumerate()}
    own = _name_of_task(os.getpid())
    for task in [int(each.name) for each in Path("/proc/self/task").iterdir()]:
        name = _name_of_task(task) if task not in native else own
        if name not in (own, "") and not name.startswith(_HARMLESS_NATIVE):
            found.append(name)
    return sorted(set(found))


def _is_harmless_thread(thread: threading.Thread) -> bool:
    target = getattr(getattr(thread, "_target", None), "__name__", "")
    known = (thread.name, type(thread).__name__)
    return target in _HARMLESS_TARGETS or any(each.startswith(_HARMLESS) for each in known)


def _is_idle_thread(thread: threading.Thread) -> bool:
    """Tell whether a thread waits and holds no lock: at a queue, as one of a pool does, or between two refreshes of a progress bar.

    A child takes from the queue what is in it. Should it wait for more, it is ended like any other that hangs.
    """
    own = {type(thread).run.__code__} if type(thread).__name__ == _REFRESHES else set()
    for look in range(_LOOKS):
        frame = sys._current_frames().get(thread.ident or 0)
        while frame is not None and frame.f_code in _WAITS:
            frame = frame.f_back
        if frame is not None and frame.f_code in own.union(_AT_QUEUE):
            return True
        if look < _LOOKS - 1:
            time.sleep(_LOOK_SECONDS)
    return False


def _name_of_task(task: int) -> str:
    try:
        return Path(f"/proc/self/task/{task}/comm").read_text("utf-8").strip()
    except OSError:  # it has ended
        return ""


def free_memory_bytes() -> int:
    """Return how much memory this process could still take: of the machine, and of its control group."""
    return free_memory().num_bytes
