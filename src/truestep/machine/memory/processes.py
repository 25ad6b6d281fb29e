# SPDX-License-Identifier: Apache-2.0
"""The processes that hold memory of a card, and the end of one, when its owner says so."""

import os
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from truestep.core.os_specific import is_own_process
from truestep.machine.gpus.processes import has_card_open, identify_process, is_in_host_pid_namespace
from truestep.machine.gpus.read import GpuReport
from truestep.machine.gpus.records import GpuProcess

if TYPE_CHECKING:
    import psutil

_POLL_SECONDS = 0.05


@dataclass(frozen=True, kw_only=True)
class HoldingProcess:
    """A process that holds memory of cards, or has a card open without being listed by the driver."""

    process: GpuProcess
    cards: tuple[int, ...]  # empty where only its open device files tell of it
    own: bool  # it is this process


@dataclass(frozen=True, kw_only=True)
class ProcessEndResult:
    """What became of a process that was to end."""

    pid: int
    ended: bool
    says: str


def holding_processes(report: GpuReport, proc: Path = Path("/proc")) -> tuple[HoldingProcess, ...]:
    """Return every process that holds memory of a card, most first, then those that only have one open."""
    found: dict[int, HoldingProcess] = {}
    for card in report.gpus:
        for process in card.processes or ():
            found[process.pid] = _add_card_to_process(found.get(process.pid), process, card.index)
    for pid in _pids_with_card_open(proc):
        if pid not in found:
            process = identify_process(GpuProcess(pid=pid, kind="open"), own_namespace=True)
            found[pid] = HoldingProcess(process=process, cards=(), own=pid == os.getpid())
    return tuple(sorted(found.values(), key=lambda one: -(one.process.memory_used_bytes or 0)))


def _add_card_to_process(known: HoldingProcess | None, process: GpuProcess, card: int) -> HoldingProcess:
    if known is None:
        return HoldingProcess(process=process, cards=(card,), own=process.pid == os.getpid())
    sizes = (known.process.memory_used_bytes, process.memory_used_bytes)
    total = None if None in sizes else sum(size for size in sizes if size is not None)
    return replace(known, process=replace(known.process, memory_used_bytes=total), cards=(*known.cards, card))


def _pids_with_card_open(proc: Path) -> Iterable[int]:
    """Yield the processes with a device file of the driver open, as far as this user may look.

    These are workers that outlived their parent, and in a container all there is to go by.
    """
    with suppress(OSError):
        for entry in proc.iterdir():
            if entry.name.isdigit() and has_card_open(int(entry.name), proc):
                yield int(entry.name)


def end_process(
    pid: int, holding: Collection[HoldingProcess], *, force: bool = False, timeout_seconds: float = 10.0
) -> ProcessEndResult:
    """End one process that holds a card, if it is this user's; `force` does not ask it to clean up first."""
    import psutil

    why = _reason_process_cannot_be_ended(pid, holding)
    if why:
        return ProcessEndResult(pid=pid, ended=False, says=why)
    try:
        process = psutil.Process(pid)
        if not is_own_process(process):
            says = f"it belongs to {process.username()}; only they may end it"
            return ProcessEndResult(pid=pid, ended=False, says=says)
        # psutil makes sure that the number still means this process
        process.kill() if force else process.terminate()
        if not _wait_for_process_end(process, timeout_seconds):
            says = f"still there after {timeout_seconds:g} s{'' if force else '; --force kills it'}"
            return ProcessEndResult(pid=pid, ended=False, says=says)
    except psutil.NoSuchProcess:
        pass
    except psutil.AccessDenied:
        return ProcessEndResult(pid=pid, ended=False, says="this user may not end it")
    return ProcessEndResult(pid=pid, ended=True, says="ended")


def _wait_for_process_end(process: "psutil.Process", timeout_seconds: float) -> bool:
    """Wait for a process to end; one that its parent has not asked for yet (a zombie) holds nothing more."""
    import psutil

    deadline = time.monotonic() + timeout_seconds
    while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _reason_process_cannot_be_ended(pid: int, holding: Collection[HoldingProcess]) -> str | None:
    one = next((one for one in holding if one.process.pid == pid), None)
    if one is None:
        known = ", ".join(str(one.process.pid) for one in holding)
        return f"it holds no card; those that do are: {known}" if known else "no process holds a card"
    if one.own or pid == os.getppid():
        return "it is this program, or what started it"
    if not is_in_host_pid_namespace() and not has_card_open(pid):
        return "the number is the host's, and means another process inside this container"
    return None
