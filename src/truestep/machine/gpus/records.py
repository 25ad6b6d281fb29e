# SPDX-License-Identifier: Apache-2.0
"""What is known of a card, its processes and its MIG instances; every field but the index may be None."""

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from truestep.machine.gpus.nvml import nvml_field


@dataclass(frozen=True, kw_only=True)
class GpuProcess:
    """A process that uses a card; who it is stays None where its number belongs to another namespace."""

    pid: int
    kind: str  # "compute", "graphics", "mps", or several joined by "+"
    memory_used_bytes: int | None = None
    user: str | None = None
    command: str | None = None
    started_at: str | None = None  # ISO 8601, UTC
    gpu_instance_id: int | None = None


_COMPUTE_MODES = ("default", "exclusive_thread", "prohibited", "exclusive_process")  # by NVML's numbers
_MEMORY_V2 = 0x02000028  # nvmlMemory_v2: its size and version, as NVML wants them in the structure
_UNKNOWN_STATE = 32  # NVML_PSTATE_UNKNOWN


def _memory_field(part: str) -> Any:
    """Return a field of the memory's bytes; drivers before 510 count the reserved part as used."""
    forms = ("nvmlDeviceGetMemoryInfo", _MEMORY_V2), ("nvmlDeviceGetMemoryInfo",)
    return nvml_field(*forms, convert=lambda info: getattr(info, part, None))


def _power_field(function: str) -> Any:
    return nvml_field((function,), convert=lambda milliwatts: milliwatts / 1000)


def _is_current_mode_on(modes: Any) -> bool:
    """Return the mode that is in force; the second one is that after the next start."""
    return bool(modes[0])


def _compute_mode_name(number: int) -> str:
    return dict(enumerate(_COMPUTE_MODES)).get(number, f"unknown ({number})")


@dataclass(frozen=True, kw_only=True)
class MigInstance:
    """A slice of a card that CUDA sees as a device of its own."""

    uuid: str | None = nvml_field(("nvmlDeviceGetUUID",))
    name: str | None = nvml_field(("nvmlDeviceGetName",))
    gpu_instance_id: int | None = nvml_field(("nvmlDeviceGetGpuInstanceId",))
    compute_instance_id: int | None = nvml_field(("nvmlDeviceGetComputeInstanceId",))
    memory_total_bytes: int | None = _memory_field("total")
    memory_used_bytes: int | None = _memory_field("used")
    memory_free_bytes: int | None = _memory_field("free")


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One card as NVML describes it; `unavailable` says per field why it is None."""

    index: int  # NVML's, which is the bus order; CUDA's may differ
    name: str | None = nvml_field(("nvmlDeviceGetName",))
    uuid: str | None = nvml_field(("nvmlDeviceGetUUID",))
    bus_id: str | None = nvml_field(("nvmlDeviceGetPciInfo",), convert=lambda info: os.fsdecode(info.busId))
    compute_capability: str | None = nvml_field(
        ("nvmlDeviceGetCudaComputeCapability",), convert=lambda pair: "{}.{}".format(*pair)
    )
    fan_percent: int | None = nvml_field(("nvmlDeviceGetFanSpeed",))
    # the newer call is the one that stays; older drivers know only the older
    temperature_celsius: int | None = nvml_field(
        ("nvmlDeviceGetTemperatureV", 0), ("nvmlDeviceGetTemperature", 0)
    )
    temperature_slowdown_celsius: int | None = nvml_field(("nvmlDeviceGetTemperatureThreshold", 1))
    performance_state: int | None = nvml_field(
        ("nvmlDeviceGetPerformanceState",), convert=lambda state: None if state == _UNKNOWN_STATE else state
    )
    persistence: bool | None = nvml_field(("nvmlDeviceGetPersistenceMode",), convert=bool)
    power_watts: float | None = _power_field("nvmlDeviceGetPowerUsage")
    power_limit_watts: float | None = _power_field("nvmlDeviceGetEnforcedPowerLimit")
    display_active: bool | None = nvml_field(("nvmlDeviceGetDisplayActive",), convert=bool)
    memory_total_bytes: int | None = _memory_field("total")
    memory_reserved_bytes: int | None = _memory_field("reserved")
    memory_used_bytes: int | None = _memory_field("used")
    memory_free_bytes: int | None = _memory_field("free")
    utilization_percent: int | None = nvml_field(
        ("nvmlDeviceGetUtilizationRates",), convert=lambda rates: rates.gpu
    )
    memory_utilization_percent: int | None = nvml_field(
        ("nvmlDeviceGetUtilizationRates",), convert=lambda rates: rates.memory
    )
    ecc_enabled: bool | None = nvml_field(("nvmlDeviceGetEccMode",), convert=_is_current_mode_on)
    # uncorrected, since the last reset
    ecc_uncorrected_errors: int | None = nvml_field(("nvmlDeviceGetTotalEccErrors", 1, 0))
    compute_mode: str | None = nvml_field(("nvmlDeviceGetComputeMode",), convert=_compute_mode_name)
    mig_enabled: bool | None = nvml_field(("nvmlDeviceGetMigMode",), convert=_is_current_mode_on)
    mig_instances: tuple[MigInstance, ...] = ()
    processes: tuple[GpuProcess, ...] | None = None
    error: str | None = None
    unavailable: Mapping[str, str] = field(default_factory=dict)


_VENDORS = {"0x10de": "NVIDIA", "0x1002": "AMD", "0x8086": "Intel"}
_CLASSES = ("0x0300", "0x0302", "0x1200")  # VGA, 3D controller, processing accelerator


@dataclass(frozen=True, kw_only=True)
class PciCard:
    """A card on the bus; `driver` is the kernel module that serves it."""

    bus_id: str
    vendor: str
    device: str
    driver: str | None


def read_cards() -> tuple[PciCard, ...]:
    """Return the graphics cards of the known makers, in bus order."""
    found = []
    with suppress(OSError):
        for device in sorted(Path("/sys/bus/pci/devices").iterdir()):
            with suppress(OSError):
                vendor = _VENDORS.get(_text(device / "vendor"))
                if vendor and _text(device / "class").startswith(_CLASSES):
                    link = device / "driver"
                    driver = link.resolve().name if link.exists() else None
                    number = _text(device / "device")
                    found.append(PciCard(bus_id=device.name, vendor=vendor, device=number, driver=driver))
    return tuple(found)


def _text(path: Path) -> str:
    return path.read_text("utf-8").strip()
