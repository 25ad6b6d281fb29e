# SPDX-License-Identifier: Apache-2.0
"""Who uses a card: NVML's process lists of all drivers, and the people behind the numbers.

In a container NVML gives the host's process numbers; the same number may belong to somebody else
inside. So there a number is believed only when that process has the driver's device files open.
"""

from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from truestep.machine.gpus.nvml import NO_FUNCTION, NvmlAnswer, NvmlSession
from truestep.machine.gpus.records import GpuProcess

_LISTS = {"compute": "Compute", "graphics": "Graphics", "mps": "MPSCompute"}
_LARGEST_PID = 2**22  # the kernel's own limit (include/linux/threads.h, PID_MAX_LIMIT)
_FIRST_NAMESPACE = "pid:[4026531836]"  # the kernel's fixed number of the host's namespace
_NO_INSTANCE = 0xFFFFFFFF  # NVML's word for a process that is in no MIG instance


def is_in_host_pid_namespace(proc: Path = Path("/proc")) -> bool:
    """Return whether process numbers here are the host's own; True where there is no /proc."""
    try:
        return str((proc / "self/ns/pid").readlink()) == _FIRST_NAMESPACE
    except OSError:
        return True


def _running_processes_of_kind(nvml: NvmlSession, handle: Any, kind: str) -> NvmlAnswer:
    """Return one list, by the newest version that the driver has; one with absurd numbers is refused."""
    answer = NvmlAnswer(reason="Not Supported")
    for version in ("_v3", "_v2"):
        answer = nvml.ask(f"nvmlDeviceGet{_LISTS[kind]}RunningProcesses{version}", handle)
        if answer.reason is None:
            if all(0 < process.pid <= _LARGEST_PID for process in answer.value):
                return answer
            answer = NvmlAnswer(reason="the driver's process numbers make no sense to this nvidia-ml-py")
        elif answer.reason != NO_FUNCTION:
            return answer
    return answer


def read_processes(nvml: NvmlSession, handle: Any, *, own_namespace: bool) -> NvmlAnswer:
    """Return the card's processes, the same process once; a reason when no list can be had."""
    found: dict[int, GpuProcess] = {}
    answers = {kind: _running_processes_of_kind(nvml, handle, kind) for kind in _LISTS}
    if all(answer.reason for answer in answers.values()):
        return answers["compute"]
    for kind, answer in answers.items():
        for raw in answer.value or ():
            found[raw.pid] = _merge_gpu_process(found.get(raw.pid), raw, kind)
    identified = (identify_process(process, own_namespace=own_namespace) for process in found.values())
    return NvmlAnswer(tuple(identified))


def _merge_gpu_process(known: GpuProcess | None, raw: Any, kind: str) -> GpuProcess:
    instance = getattr(raw, "gpuInstanceId", _NO_INSTANCE)
    before = known.memory_used_bytes if known else None
    sizes = [size for size in (before, raw.usedGpuMemory) if size is not None]
    return GpuProcess(
        pid=raw.pid,
        kind=f"{known.kind}+{kind}" if known else kind,
        memory_used_bytes=max(sizes, default=None),
        gpu_instance_id=None if instance in (None, _NO_INSTANCE) else instance,
    )


def identify_process(process: GpuProcess, *, own_namespace: bool, proc: Path = Path("/proc")) -> GpuProcess:
    """Return `process` with user, command and start, as far as this user may know them."""
    import psutil

    if not own_namespace and not has_card_open(process.pid, proc):
        return process
    try:
        about = psutil.Process(process.pid).as_dict(["username", "cmdline", "name", "create_time"])
    except psutil.Error:
        return process
    command = " ".join(about["cmdline"] or ()) or about["name"]
    began = about["create_time"]
    started_at = began and datetime.fromtimestamp(began, UTC).isoformat(timespec="seconds")
    return replace(process, user=about["username"], command=command, started_at=started_at)


def has_card_open(pid: int, proc: Path = Path("/proc")) -> bool:
    """Return whether the process has a file of the NVIDIA driver open, as far as this user may look."""
    with suppress(OSError):
        for entry in (proc / str(pid) / "fd").iterdir():
            with suppress(OSError):  # closed since
                if str(entry.readlink()).startswith("/dev/nvidia"):
                    return True
    return False
