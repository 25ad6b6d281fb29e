# SPDX-License-Identifier: Apache-2.0
"""Read every card of the machine through NVML."""

import socket
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from truestep.core.result_display import RenderableType, Result
from truestep.machine.gpus.nvml import LOST, NvmlAnswer, NvmlSession, NvmlUnavailable, nvml_session
from truestep.machine.gpus.processes import is_in_host_pid_namespace, read_processes
from truestep.machine.gpus.records import Gpu, MigInstance

_NOT_ASKED = NvmlAnswer(reason="not asked")


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


def _read_mig_instances(nvml: NvmlSession, handle: Any) -> tuple[MigInstance, ...]:
    count = nvml.ask("nvmlDeviceGetMaxMigDeviceCount", handle).value or 0
    handles = [nvml.ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, index).value for index in range(count)]
    return tuple(_read_mig_instance(nvml, instance) for instance in handles if instance is not None)


def _read_mig_instance(nvml: NvmlSession, handle: Any) -> MigInstance:
    told = nvml.read_fields(MigInstance, handle)
    return MigInstance(**{name: answer.value for name, answer in told.items()})


def read_gpu(nvml: NvmlSession, index: int, *, own_namespace: bool, processes: bool) -> Gpu:
    """Return all that the card numbered `index` tells; a lost card is a card with an error."""
    handle = nvml.ask("nvmlDeviceGetHandleByIndex", index)
    if handle.reason is not None:
        return Gpu(index=index, error=handle.reason)
    answers = {**nvml.read_fields(Gpu, handle.value), "processes": _NOT_ASKED}
    if processes:
        answers["processes"] = read_processes(nvml, handle.value, own_namespace=own_namespace)
    fields = {field: answer.value for field, answer in answers.items() if answer.reason is None}
    reasons = {field: answer.reason for field, answer in answers.items() if answer.reason is not None}
    instances = _read_mig_instances(nvml, handle.value) if fields.get("mig_enabled") else ()
    lost = next((reason for reason in reasons.values() if reason in LOST), None)
    return Gpu(index=index, mig_instances=instances, error=lost, unavailable=reasons, **fields)


def _driver_cuda_version(nvml: NvmlSession) -> str | None:
    number = nvml.ask_first(("nvmlSystemGetCudaDriverVersion_v2",), ("nvmlSystemGetCudaDriverVersion",)).value
    return f"{number // 1000}.{number % 1000 // 10}" if number else None


def read_gpus(*, processes: bool = True) -> GpuReport:
    """Return every card of this machine; never raises for the machine's state."""
    about: dict[str, Any] = {
        "taken_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "hostname": socket.gethostname(),
    }
    try:
        with nvml_session() as nvml:
            return _read_report(nvml, about, processes)
    except NvmlUnavailable as missing:
        return GpuReport(error=str(missing), **about)


def _read_report(nvml: NvmlSession, about: dict[str, Any], processes: bool) -> GpuReport:
    count = nvml.ask("nvmlDeviceGetCount")
    own_namespace = is_in_host_pid_namespace()
    cards = tuple(
        read_gpu(nvml, index, own_namespace=own_namespace, processes=processes)
        for index in range(count.value or 0)
    )
    no_card = "the driver runs, but shows no card to this user or container"
    return GpuReport(
        driver_version=nvml.ask("nvmlSystemGetDriverVersion").value,
        cuda_version=_driver_cuda_version(nvml),
        pids_of_host=not own_namespace,
        gpus=cards,
        error=count.reason or (None if cards else no_card),
        **about,
    )
