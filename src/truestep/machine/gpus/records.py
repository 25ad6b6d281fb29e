# SPDX-License-Identifier: Apache-2.0
"""What is known of a card, its processes and its MIG instances; every field but the index may be None."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from truestep.core.results import RenderableType, Result


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


@dataclass(frozen=True, kw_only=True)
class MigInstance:
    """A slice of a card that CUDA sees as a device of its own."""

    uuid: str | None = None
    name: str | None = None
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    memory_free_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One card as NVML describes it; `unavailable` says per field why it is None."""

    index: int  # NVML's, which is the bus order; CUDA's may differ
    name: str | None = None
    uuid: str | None = None
    bus_id: str | None = None
    compute_capability: str | None = None
    fan_percent: int | None = None
    temperature_celsius: int | None = None
    temperature_slowdown_celsius: int | None = None
    performance_state: int | None = None
    persistence: bool | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    display_active: bool | None = None
    memory_total_bytes: int | None = None
    memory_reserved_bytes: int | None = None
    memory_used_bytes: int | None = None
    memory_free_bytes: int | None = None
    utilization_percent: int | None = None
    memory_utilization_percent: int | None = None
    ecc_enabled: bool | None = None
    ecc_uncorrected_errors: int | None = None
    compute_mode: str | None = None
    mig_enabled: bool | None = None
    mig_instances: tuple[MigInstance, ...] = ()
    processes: tuple[GpuProcess, ...] | None = None
    error: str | None = None
    unavailable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class GpuReport(Result):
    """The cards of this machine, or the reason why there are none to see."""

    taken_at: str  # ISO 8601, UTC
    hostname: str
    driver_version: str | None = None
    cuda_version: str | None = None  # the newest CUDA that the driver supports
    pids_of_host: bool = False  # process numbers are the host's: this is a container
    gpus: tuple[Gpu, ...] = ()
    error: str | None = None

    def __rich__(self) -> RenderableType:
        from truestep.machine.gpus.table import GpuReportTable

        return GpuReportTable(self)
