# SPDX-License-Identifier: Apache-2.0
"""How much memory is in use: of this process, and of each device that it uses."""

import sys
from dataclasses import dataclass
from typing import Any

from truestep.core.os_specific import peak_memory_bytes


@dataclass(frozen=True, kw_only=True)
class DeviceMemory:
    """One device: what tensors take, what torch keeps for them, what is in use on the whole card."""

    device: str
    allocated_bytes: int
    reserved_bytes: int
    used_bytes: int | None  # of all processes, with the driver's own part
    total_bytes: int | None


@dataclass(frozen=True, kw_only=True)
class MemoryAmounts:
    """Memory at one moment; `devices` is empty while this process uses none."""

    process_bytes: int  # resident in main memory
    process_peak_bytes: int | None
    devices: tuple[DeviceMemory, ...] = ()


def measure_memory() -> MemoryAmounts:
    """Return the amounts at this moment; neither imports torch nor starts CUDA."""
    import psutil

    resident = psutil.Process().memory_info().rss
    return MemoryAmounts(
        process_bytes=resident, process_peak_bytes=peak_memory_bytes(), devices=_measure_devices()
    )


def accelerator_in_use() -> Any:
    """Return `torch.accelerator` where this process has started one, else None.

    Asking a CUDA build whether a card is available would start CUDA, so only a started one counts.
    """
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "accelerator"):
        return None
    if (torch.version.cuda or torch.version.hip) and not torch.cuda.is_initialized():
        return None
    return torch.accelerator if torch.accelerator.is_available() else None


def _measure_devices() -> tuple[DeviceMemory, ...]:
    accelerator = accelerator_in_use()
    if accelerator is None:
        return ()
    kind = accelerator.current_accelerator().type
    return tuple(_measure_device(accelerator, kind, index) for index in range(accelerator.device_count()))


def _measure_device(accelerator: Any, kind: str, index: int) -> DeviceMemory:
    try:
        free, total = accelerator.get_memory_info(index)
    except (RuntimeError, NotImplementedError, AttributeError):
        free = total = None
    return DeviceMemory(
        device=f"{kind}:{index}",
        allocated_bytes=accelerator.memory_allocated(index),
        reserved_bytes=accelerator.memory_reserved(index),
        used_bytes=None if total is None else total - free,
        total_bytes=total,
    )
