# SPDX-License-Identifier: Apache-2.0
"""Read every card of the machine through NVML."""

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


def _as_text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _compute_mode(number: int) -> str:
    return _COMPUTE_MODES[number] if number < len(_COMPUTE_MODES) else f"unknown ({number})"


@dataclass(frozen=True)
class NvmlQuestion:
    """A function of NVML that fills one field of a card."""

    function: str
    arguments: tuple[Any, ...] = ()
    convert: Callable[[Any], Any] = lambda value: value


QUESTIONS = {
    "name": NvmlQuestion("nvmlDeviceGetName"),
    "uuid": NvmlQuestion("nvmlDeviceGetUUID"),
    "bus_id": NvmlQuestion("nvmlDeviceGetPciInfo", convert=lambda info: _as_text(info.busId)),
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
    "ecc_uncorrected_errors": NvmlQuestion(
        "nvmlDeviceGetTotalEccErrors", (1, 0)
    ),  # uncorrected, since the last reset
    "compute_mode": NvmlQuestion("nvmlDeviceGetComputeMode", convert=_compute_mode),
    "mig_enabled": NvmlQuestion("nvmlDeviceGetMigMode", convert=lambda modes: bool(modes[0])),
}


class _Card:
    """Collects one card's fields and, for each that stays empty, the reason."""

    def __init__(self, nvml: Nvml, handle: Any) -> None:
        self.nvml, self.handle = nvml, handle
        self.fields: dict[str, Any] = {}
        self.unavailable: dict[str, str] = {}

    def note(self, field: str, answer: NvmlAnswer) -> None:
        if answer.reason is not None:
            self.unavailable[field] = answer.reason
        else:
            self.fields[field] = answer.value

    def ask_all(self) -> None:
        for field, question in QUESTIONS.items():
            answer = self.nvml.ask(question.function, self.handle, *question.arguments)
            self.note(field, answer if answer.reason else NvmlAnswer(question.convert(answer.value)))
        self.note("temperature_celsius", self._temperature())
        self._memory()

    def _temperature(self) -> NvmlAnswer:
        # the newer call is the one that stays; older drivers know only the older
        return self.nvml.ask_first(
            ("nvmlDeviceGetTemperatureV", self.handle, 0), ("nvmlDeviceGetTemperature", self.handle, 0)
        )

    def _memory(self) -> None:
        for field, answer in read_card_memory(self.nvml, self.handle).items():
            self.note(f"memory_{field}_bytes", answer)

    def error(self) -> str | None:
        return next((reason for reason in self.unavailable.values() if reason in LOST), None)


def read_card_memory(nvml: Nvml, handle: Any) -> dict[str, NvmlAnswer]:
    """Return total, reserved, used and free; drivers before 510 count the reserved part as used."""
    answer = nvml.ask_first(
        ("nvmlDeviceGetMemoryInfo", handle, _MEMORY_V2), ("nvmlDeviceGetMemoryInfo", handle)
    )
    if answer.reason is not None:
        return dict.fromkeys(("total", "reserved", "used", "free"), answer)
    memory = answer.value
    reserved = getattr(memory, "reserved", None)
    return {
        "total": NvmlAnswer(memory.total),
        "reserved": NvmlAnswer(reserved)
        if reserved is not None
        else NvmlAnswer(reason="the driver does not say"),
        "used": NvmlAnswer(memory.used),
        "free": NvmlAnswer(memory.free),
    }


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
    card = _Card(nvml, handle.value)
    card.ask_all()
    users = read_processes(nvml, handle.value, own_namespace=own_namespace) if processes else _NOT_ASKED
    card.note("processes", users)
    instances = _mig_instances(nvml, handle.value) if card.fields.get("mig_enabled") else ()
    return Gpu(
        index=index, mig_instances=instances, error=card.error(), unavailable=card.unavailable, **card.fields
    )


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
