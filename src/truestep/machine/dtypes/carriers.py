# SPDX-License-Identifier: Apache-2.0
"""What carries a dtype out of torch: NumPy, safetensors, ONNX; and the old names of its tensors."""

import json
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch

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
