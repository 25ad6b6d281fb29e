# SPDX-License-Identifier: Apache-2.0
"""On which devices here a dtype computes, and how fast: by computing."""

import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

_REPEATS = 7
_SECONDS = 1.0  # for one dtype on one device: a product without a fast kernel is repeated less often


@dataclass(frozen=True, kw_only=True)
class DtypeDevice:
    """A device that was asked, and for how many of its kind it stands."""

    name: str
    model: str | None
    count: int


@dataclass(frozen=True, kw_only=True)
class DtypeSupport:
    """What a dtype can do on a device."""

    device: str
    add: bool
    matmul: bool
    matmul_seconds: float | None = None  # the median of `repeats`
    repeats: int = 0


@contextmanager
def without_dtype_warnings() -> Iterator[None]:
    """Hold back torch's warnings about experimental types, without using up those that it gives once."""
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_warn_always(always)


def available_dtype_devices() -> tuple[DtypeDevice, ...]:
    """Return the CPU and one accelerator of each model."""
    found = [DtypeDevice(name="cpu", model=None, count=1)]
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if accelerator is not None:
        module = torch.get_device_module(accelerator)
        name_of = getattr(module, "get_device_name", lambda _: accelerator.type)
        models = [name_of(index) for index in range(torch.accelerator.device_count())]
        for model in dict.fromkeys(models):
            name = f"{accelerator.type}:{models.index(model)}"
            found.append(DtypeDevice(name=name, model=model, count=models.count(model)))
    return tuple(found)


def dtype_support(dtype: torch.dtype, device: DtypeDevice, *, size: int | None) -> DtypeSupport:
    """Return whether `dtype` adds and multiplies matrices on a device; with `size`, how long a product of that size takes."""
    add = _can_compute(lambda ones: ones + ones, dtype, device)
    matmul = _can_compute(lambda ones: ones @ ones, dtype, device)
    seconds = _time_matmul(dtype, device, size) if matmul and size else []
    median = statistics.median(seconds) if seconds else None
    return DtypeSupport(
        device=device.name, add=add, matmul=matmul, matmul_seconds=median, repeats=len(seconds)
    )


def _can_compute(operation: Callable[[Tensor], Tensor], dtype: torch.dtype, device: DtypeDevice) -> bool:
    try:
        _wait_for_result(operation(torch.ones(2, 2, device=device.name).to(dtype)))
    except Exception:  # noqa: BLE001  each type and device refuses in its own way
        return False
    return True


def _wait_for_result(result: Tensor) -> None:
    """Wait until a result is there: a GPU reports its errors late."""
    if result.device.type != "cpu":
        torch.accelerator.synchronize(result.device)


def _time_matmul(dtype: torch.dtype, device: DtypeDevice, size: int) -> list[float]:
    row = torch.arange(size * size, device=device.name) % 7  # neither random nor constant
    matrix = (row.reshape(size, size).float() / 8).to(dtype)
    _wait_for_result(matrix @ matrix)
    seconds: list[float] = []
    while len(seconds) < _REPEATS and (not seconds or sum(seconds) < _SECONDS):
        start = time.perf_counter()
        _wait_for_result(matrix @ matrix)
        seconds.append(time.perf_counter() - start)
    return seconds
