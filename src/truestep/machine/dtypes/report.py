# SPDX-License-Identifier: Apache-2.0
"""All dtypes as one report."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch

from truestep.core.errors import OptionError
from truestep.core.result_display import RenderableType, Result
from truestep.machine.dtypes.dtype_support import (
    DtypeDevice,
    DtypeSupport,
    available_dtype_devices,
    dtype_support,
    without_dtype_warnings,
)
from truestep.machine.dtypes.dtype_values import DtypeNumericLimits, numeric_limits_of_dtype

_ORDER = ("bool", "whole", "float", "complex", "quantised", "bits", "unknown")
LARGEST = 16384


@dataclass(frozen=True, kw_only=True)
class DtypeRow:
    """One dtype.

    Attributes:
        name: as in `torch.NAME`.
        aliases: other names of the same dtype: `torch.half`.
        bytes: of one element of a tensor, which several values may share.
        numbers: kind, bits, range and precision.
        decimal_digits: how many significant ones its precision is worth.
        numpy: the dtype that `tensor.numpy()` has, or None.
        safetensors: its code in a safetensors file, or None where it does not go in and come out again.
        onnx: its name in ONNX, or None.
        legacy: the old tensor types by place: "cpu", "cuda", and both with " sparse".
        devices: what it can do on each device.
    """

    name: str
    aliases: tuple[str, ...]
    bytes: int
    numbers: DtypeNumericLimits
    decimal_digits: float | None
    numpy: str | None
    safetensors: str | None
    onnx: str | None
    legacy: Mapping[str, str]
    devices: tuple[DtypeSupport, ...]


@dataclass(frozen=True, kw_only=True)
class DtypeReport(Result):
    """Every dtype of the installed torch."""

    torch_version: str
    onnx_source: str
    devices: tuple[DtypeDevice, ...]
    matmul_size: int | None
    dtypes: tuple[DtypeRow, ...]

    def __rich__(self) -> RenderableType:
        from truestep.machine.dtypes.screen import dtype_report_table

        return dtype_report_table(self)


def dtypes(*, time_matmul: bool = False, size: int = 512) -> DtypeReport:
    """Return every dtype of the installed torch: its numbers, the devices here that compute with it, and what carries it.

    Everything is found by trying it: bit patterns, a sum and a product on the CPU and on one accelerator of each model (which
    starts CUDA where there is one), a safetensors file in memory.

    Args:
        time_matmul: also time the product of two matrices in each dtype that has one (the median of up to 7).
        size: rows and columns of these matrices.

    Raises:
        OptionError: for a size that is no whole number from 1 to 16384.
    """
    if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= LARGEST:
        raise OptionError(f"size={size!r}: give the rows of the matrices to multiply, from 1 to {LARGEST}.")
    devices, timed = available_dtype_devices(), size if time_matmul else None
    onnx, onnx_source = onnx_dtype_names()
    with without_dtype_warnings():
        rows = [
            _make_dtype_row(
                dtype, names, onnx, tuple(dtype_support(dtype, device, size=timed) for device in devices)
            )
            for dtype, names in _all_dtype_names().items()
        ]
    rows.sort(key=lambda row: (_ORDER.index(row.numbers.kind), row.numbers.bits, row.name))
    return DtypeReport(
        torch_version=torch.__version__,
        onnx_source=onnx_source,
        devices=devices,
        matmul_size=timed,
        dtypes=tuple(rows),
    )


def _all_dtype_names() -> dict[torch.dtype, list[str]]:
    """Return every dtype of torch with all its names."""
    found: dict[torch.dtype, list[str]] = {}
    for name, value in sorted(vars(torch).items()):
        if isinstance(value, torch.dtype):
            found.setdefault(value, []).append(name)
    return found


def _make_dtype_row(
    dtype: torch.dtype, names: list[str], onnx: Mapping[str, str], devices: tuple[DtypeSupport, ...]
) -> DtypeRow:
    name = str(dtype).removeprefix("torch.")
    numbers = numeric_limits_of_dtype(dtype)
    return DtypeRow(
        name=name,
        aliases=tuple(other for other in names if other != name),
        bytes=dtype.itemsize,
        numbers=numbers,
        decimal_digits=numbers.decimal_digits,
        numpy=numpy_dtype_name(dtype),
        safetensors=safetensors_dtype_code(dtype),
        onnx=onnx.get(name),
        legacy=legacy_tensor_types().get(dtype, {}),
        devices=devices,
    )


# The names in TensorProto.DataType of ONNX, as of onnx 1.23.2: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto
_SAME = """bool float16 bfloat16 complex64 complex128 uint8 int8 uint16 int16 uint32 int32 uint64 int64 uint2 int2 uint4 int4
    float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz"""
ONNX = {name: name.replace("_", "").upper() for name in _SAME.split()}
ONNX |= {
    "float32": "FLOAT",
    "float64": "DOUBLE",
    "float8_e8m0fnu": "FLOAT8E8M0",
    "float4_e2m1fn_x2": "FLOAT4E2M1",
}


def numpy_dtype_name(dtype: torch.dtype) -> str | None:
    """Return the NumPy dtype that torch makes of `dtype`, or None."""
    try:
        return str(torch.empty(0, dtype=dtype, device="cpu").numpy().dtype)
    except (TypeError, RuntimeError):
        return None


def safetensors_dtype_code(dtype: torch.dtype) -> str | None:
    """Return the code under which a tensor goes into a safetensors file and comes back out of it, or None."""
    from safetensors.torch import load, save

    try:
        stored = save({"x": torch.empty(2, dtype=dtype, device="cpu")})
        if load(stored)["x"].dtype != dtype:
            return None
    except Exception:  # noqa: BLE001  each version refuses in its own way, and some write what they can't read
        return None
    header: dict[str, dict[str, str]] = json.loads(stored[8 : 8 + int.from_bytes(stored[:8], "little")])
    return header["x"]["dtype"]


def onnx_dtype_names() -> tuple[dict[str, str], str]:
    """Return ONNX's name for each torch dtype that it has, and where that is from: the installed onnx, or the table."""
    if find_spec("onnx") is None:
        return ONNX, "the table of onnx 1.23.2"
    try:
        onnx: Any = import_module("onnx")
    except Exception as error:  # noqa: BLE001  a broken onnx must not end the report
        return ONNX, f"the table of onnx 1.23.2; the installed one does not load: {error}"
    there = set(onnx.TensorProto.DataType.keys())
    return {name: theirs for name, theirs in ONNX.items() if theirs in there}, f"onnx {onnx.__version__}"


def legacy_tensor_types() -> dict[torch.dtype, dict[str, str]]:
    """Return the old names of tensors by dtype and place: {"cpu": "torch.HalfTensor", "cuda": "torch.cuda.HalfTensor"}."""
    found: dict[torch.dtype, dict[str, str]] = {}
    for kind in torch._tensor_classes:
        place = ("cuda" if kind.is_cuda else "cpu") + (" sparse" if kind.is_sparse else "")
        found.setdefault(kind.dtype, {})[place] = f"{kind.__module__}.{kind.__name__}"
    return found
