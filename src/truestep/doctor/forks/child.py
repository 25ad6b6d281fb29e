# SPDX-License-Identifier: Apache-2.0
"""What a forked child does: it is sealed, works, tells what came out, and ends without a trace."""

import gc
import json
import os
import resource
import signal
import stat
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.thread import _threads_queues
from pathlib import Path
from posix import _exit  # os._exit may be wrapped, by us too
from typing import Any, Never

from truestep.doctor.forks.fork_obstacles import free_memory_bytes
from truestep.doctor.forks.private_memory import make_memory_private
from truestep.doctor.forks.reopened_files import is_memory_device, reopen_descriptors
from truestep.doctor.forks.seccomp_filter import filter_system_calls

_SET_PARENT_DEATH_SIGNAL = 1


class NotTriedError(Exception):
    """What was to be tried can't be, for the reason in the message."""


def exit_at_once() -> Never:
    """End at once: no handler of the program's at its exit, and nothing that its buffers still hold."""
    _exit(0)


def run_as_sealed_child(parent: int, work: Callable[[], Any], channel: int, seconds: float) -> Never:
    """Seal this process, work, write `{"value": ...}` or `{"failure": ...}` as JSON to the channel, and end."""
    try:
        try:
            _seal_process(parent, channel, seconds)
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing of the user's runs
            told = {"failure": f"the child can't be sealed here: {error}"}
        else:
            told = {"value": work()}
    except NotTriedError as error:
        told = {"failure": str(error)}
    except MemoryError:
        told = {"failure": "it took more memory than was left for it"}
    except BaseException as error:  # noqa: BLE001 - the user's code may raise anything
        told = {"failure": f"{type(error).__name__}: {error}"}
    try:
        with os.fdopen(channel, "wb", closefd=False) as file:
            file.write(json.dumps(told).encode())
    finally:
        exit_at_once()


def seal_or_exit(parent: int, channel: int, seconds: float, failing: bytes) -> None:
    """Seal this process, whose life goes on; where it can't be, write the reason behind `failing` and end it."""
    try:
        _seal_process(parent, channel, seconds)
    except BaseException as error:  # noqa: BLE001 - whatever it is, nothing of the user's runs
        with os.fdopen(channel, "wb", closefd=False) as file:
            file.write(failing + f"the child can't be sealed here: {error}".encode())
        exit_at_once()


def _seal_process(parent: int, channel: int, seconds: float) -> None:
    """Cut this process off from all that lies outside of it."""
    from ctypes import CDLL

    os.setsid()  # signals of the terminal are its parent's
    CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        exit_at_once()
    _limit_resources(seconds)
    make_memory_private()
    reopen_descriptors(channel)
    sys.addaudithook(_refuse_special_files)
    filter_system_calls()
    import torch

    _reset_thread_pools()
    torch.set_num_threads(1)  # large operations wait for ever for threads that the fork left behind


def _reset_thread_pools() -> None:
    """Have pools start threads anew: those that they had are the parent's.

    To list all objects is to write to each, which has the system copy the whole memory; to look for what refers to the threads'
    queues is not.
    """
    if not (queues := set(_threads_queues.values())):
        return
    holders = gc.get_referrers(*queues)
    for each in [*holders, *gc.get_referrers(*(one for one in holders if type(one) is dict))]:
        if issubclass(type(each), ThreadPoolExecutor):
            each._threads, each._idle_semaphore = set(), threading.Semaphore(0)


def _refuse_special_files(event: str, given: tuple[Any, ...]) -> None:
    """Keep from opening what a read takes something out of: named pipes, terminals, a pipe of another process under `/proc`."""
    if event != "open" or isinstance(given[0], int):
        return
    try:
        mode = Path(os.fsdecode(given[0])).stat()
    except (OSError, ValueError, TypeError):
        return
    if not stat.S_ISREG(mode.st_mode) and not stat.S_ISDIR(mode.st_mode) and not is_memory_device(mode):
        raise PermissionError(f"a sealed child does not open {given[0]!r}")


def _limit_resources(seconds: float) -> None:
    """Let the child run out of memory and time before anybody else does."""
    Path("/proc/self/oom_score_adj").write_text("1000", "ascii")
    size = int(Path("/proc/self/statm").read_text("ascii").split()[0]) * resource.getpagesize()
    _set_resource_limit(resource.RLIMIT_AS, size + free_memory_bytes() // 2)
    _set_resource_limit(resource.RLIMIT_CPU, int(seconds) * 2 + 1)
    _set_resource_limit(resource.RLIMIT_CORE, 0)
    most_files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (most_files, most_files)
    )  # each file that it writes stays open


def _set_resource_limit(kind: int, most: int) -> None:
    hard = resource.getrlimit(kind)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (most, most))
