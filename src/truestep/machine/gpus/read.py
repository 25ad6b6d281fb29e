# SPDX-License-Identifier: Apache-2.0
"""Read every card of the machine through NVML."""

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from truestep.machine.gpus.nvml import LOST, Nvml, NvmlAnswer, NvmlMissing, nvml_session
from truestep.machine.gpus.processes import gpu_pids_are_own, read_processes
from truestep.machine.gpus.records import Gpu, GpuReport, MigInstance

_COMPUTE_MODES = ("default", "exclusive_thread", "prohibited", "exclusive_process")  # by NVML's numbers
_MEMORY_V2 = 0x02000028  # nvmlMemory_v2: its size and version, as NVML wants them in the structure
_UNKNOWN_STATE = 32  # NVML_PSTATE_UNKNOWN
_NOT_ASKED = NvmlAnswer(reason="not asked")


@dataclass(frozen=True)
class NvmlQuestion:
    """A function of NVML that fills one field of a card."""

    function: str
    arguments: tuple[Any, ...] = ()
    convert: Callable[[Any], Any] = lambda value: value


QUESTIONS = {
    "name": NvmlQuestion("nvmlDeviceGetName"),
    "uuid": NvmlQuestion("nvmlDeviceGetUUID"),
    "bus_id": NvmlQuestion("nvmlDeviceGetPciInfo", convert=lambda info: os.fsdecode(info.busId)),
    "compute_capability": NvmlQuestion(
        "nvmlDeviceGetCudaComputeCapability", convert=lambda pair: "{}.{}".format(*pair)
    ),
    "fan_percent": NvmlQuestion("nvmlDeviceGetFanSpeed"),
    "temperature_slowdown_celsius": NvmlQuestion("nvmlDeviceGetTemperatureThreshold", (1,)),
    "performance_state": NvmlQuestion(
        "nvmlDeviceGetPerformanceState", convert=lambda state: None if state == _UNKNOWN_STATE else state
    ),
    "persistence": NvmlQuestion("nvmlDeviceGetPersistenceMode", convert=bool),
    "power_watts": NvmlQuestion("nvmlDeviceGetPowerUsage", convert=lambda milliwatts: milliwatts / 1000),
    "power_limit_watts": NvmlQuestion(
        "nvmlDeviceGetEnforcedPowerLimit", convert=lambda milliwatts: milliwatts / 1000
    ),
    "display_active": NvmlQuestion("nvmlDeviceGetDisplayActive", convert=bool),
    "utilization_percent": NvmlQuestion("nvmlDeviceGetUtilizationRates", convert=lambda rates: rates.gpu),
    "memory_utilization_percent": NvmlQuestion(
        "nvmlDeviceGetUtilizationRates", convert=lambda rates: rates.memory
    ),
    "ecc_enabled": NvmlQuestion("nvmlDeviceGetEccMode", convert=lambda modes: bool(modes[0])),
    # uncorrected, since the last reset
    "ecc_uncorrected_errors": NvmlQuestion("nvmlDeviceGetTotalEccErrors", (1, 0)),
    "compute_mode": NvmlQuestion(
        "nvmlDeviceGetComputeMode",
        convert=lambda number: dict(enumerate(_COMPUTE_MODES)).get(number, f"unknown ({number})"),
    ),
    "mig_enabled": NvmlQuestion("nvmlDeviceGetMigMode", convert=lambda modes: bool(modes[0])),
}


def _answers(nvml: Nvml, handle: Any) -> dict[str, NvmlAnswer]:
    """Return what a card tells of each field, or why it does not."""
    found = {}
    for field, question in QUESTIONS.items():
        answer = nvml.ask(question.function, handle, *question.arguments)
        found[field] = answer if answer.reason else NvmlAnswer(question.convert(answer.value))
    # the newer call is the one that stays; older drivers know only the older
    found["temperature_celsius"] = nvml.ask_first(
        ("nvmlDeviceGetTemperatureV", handle, 0), ("nvmlDeviceGetTemperature", handle, 0)
    )
    return found | {f"memory_{part}_bytes": answer for part, answer in read_card_memory(nvml, handle).items()}


def read_card_memory(nvml: Nvml, handle: Any) -> dict[str, NvmlAnswer]:
    """Return total, reserved, used and free; drivers before 510 count the reserved part as used."""
    answer = nvml.ask_first(
        ("nvmlDeviceGetMemoryInfo", handle, _MEMORY_V2), ("nvmlDeviceGetMemoryInfo", handle)
    )
    if answer.reason is not None:
        return dict.fromkeys(("total", "reserved", "used", "free"), answer)
    found = {part: getattr(answer.value, part, None) for part in ("total", "reserved", "used", "free")}
    untold = NvmlAnswer(reason="the driver does not say")
    return {part: untold if value is None else NvmlAnswer(value) for part, value in found.items()}


def _mig_instances(nvml: Nvml, handle: Any) -> tuple[MigInstance, ...]:
    count = nvml.ask("nvmlDeviceGetMaxMigDeviceCount", handle).value or 0
    handles = [nvml.ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, index).value for index in range(count)]
    return tuple(_mig_instance(nvml, instance) for instance in handles if instance is not None)


def _mig_instance(nvml: Nvml, handle: Any) -> MigInstance:
    memory = read_card_memory(nvml, handle)
    return MigInstance(
        uuid=nvml.ask("nvmlDeviceGetUUID", handle).value,
        name=nvml.ask("nvmlDeviceGetName", handle).value,
        gpu_instance_id=nvml.ask("nvmlDeviceGetGpuInstanceId", handle).value,
        compute_instance_id=nvml.ask("nvmlDeviceGetComputeInstanceId", handle).value,
        memory_total_bytes=memory["total"].value,
        memory_used_bytes=memory["used"].value,
        memory_free_bytes=memory["free"].value,
    )


def read_gpu(nvml: Nvml, index: int, *, own_namespace: bool, processes: bool) -> Gpu:
    """Return all that the card numbered `index` tells; a lost card is a card with an error."""
    handle = nvml.ask("nvmlDeviceGetHandleByIndex", index)
    if handle.reason is not None:
        return Gpu(index=index, error=handle.reason)
    answers = _answers(nvml, handle.value)
    answers["processes"] = _NOT_ASKED
    if processes:
        answers["processes"] = read_processes(nvml, handle.value, own_namespace=own_namespace)
    fields = {field: answer.value for field, answer in answers.items() if answer.reason is None}
    reasons = {field: answer.reason for field, answer in answers.items() if answer.reason is not None}
    instances = _mig_instances(nvml, handle.value) if fields.get("mig_enabled") else ()
    lost = next((reason for reason in reasons.values() if reason in LOST), None)
    return Gpu(index=index, mig_instances=instances, error=lost, unavailable=reasons, **fields)


def _cuda_version(nvml: Nvml) -> str | None:
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
            return _read(nvml, about, processes)
    except NvmlMissing as missing:
        return GpuReport(error=str(missing), **about)


def _read(nvml: Nvml, about: dict[str, Any], processes: bool) -> GpuReport:
    count = nvml.ask("nvmlDeviceGetCount")
    own_namespace = gpu_pids_are_own()
    cards = tuple(
        read_gpu(nvml, index, own_namespace=own_namespace, processes=processes)
        for index in range(count.value or 0)
    )
    no_card = "the driver runs, but shows no card to this user or container"
    return GpuReport(
        driver_version=nvml.ask("nvmlSystemGetDriverVersion").value,
        cuda_version=_cuda_version(nvml),
        pids_of_host=not own_namespace,
        gpus=cards,
        error=count.reason or (None if cards else no_card),
        **about,
    )
