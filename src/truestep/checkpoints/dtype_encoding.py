# SPDX-License-Identifier: Apache-2.0
"""How each dtype, and each order of memory, lies in a safetensors file. Imports no torch.

What the format has no code for is kept as parts of one it has, along a last axis of its own:
a complex128 of shape (3,) is an F64 of shape (3, 2). The manifest names the true dtype.
"""

import math
from dataclasses import dataclass

MAX_DIMENSIONS = 64  # torch copies no tensor of more
MAX_BYTES = (1 << 63) - 1  # sizes and strides are 64 bits to torch


@dataclass(frozen=True)
class StoredDtype:
    """The code of a dtype in a safetensors file, and how many such numbers make one element."""

    code: str
    code_bytes: int
    parts: int = 1

    @property
    def element_bytes(self) -> int:
        """Bytes of one element."""
        return self.code_bytes * self.parts

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape in the file of a tensor of the given shape."""
        return shape if self.parts == 1 else (*shape, self.parts)


DTYPES: dict[str, StoredDtype] = {
    "bool": StoredDtype("BOOL", 1),
    "uint8": StoredDtype("U8", 1),
    "uint16": StoredDtype("U16", 2),
    "uint32": StoredDtype("U32", 4),
    "uint64": StoredDtype("U64", 8),
    "int8": StoredDtype("I8", 1),
    "int16": StoredDtype("I16", 2),
    "int32": StoredDtype("I32", 4),
    "int64": StoredDtype("I64", 8),
    "float16": StoredDtype("F16", 2),
    "bfloat16": StoredDtype("BF16", 2),
    "float32": StoredDtype("F32", 4),
    "float64": StoredDtype("F64", 8),
    "float8_e4m3fn": StoredDtype("F8_E4M3", 1),
    "float8_e5m2": StoredDtype("F8_E5M2", 1),
    "float8_e4m3fnuz": StoredDtype("U8", 1),
    "float8_e5m2fnuz": StoredDtype("U8", 1),
    "float8_e8m0fnu": StoredDtype("F8_E8M0", 1),
    "float4_e2m1fn_x2": StoredDtype("U8", 1),
    "complex32": StoredDtype("F16", 2, 2),
    "complex64": StoredDtype("C64", 8),
    "complex128": StoredDtype("F64", 8, 2),
}
# what a plain safetensors file from elsewhere can hold, as the dtype it is read as
CODES = {
    stored.code: name
    for name, stored in DTYPES.items()
    if stored.parts == 1 and (stored.code, name[:5]) != ("U8", "float")
} | {"F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz"}


def check_tensor_size(shape: tuple[int, ...], element_bytes: int) -> None:
    """Raise ValueError for a shape that no tensor can have: torch multiplies the sizes of empty ones, too."""
    if len(shape) > MAX_DIMENSIONS:
        raise ValueError(f"{len(shape)} dimensions are more than the {MAX_DIMENSIONS} that a tensor can have")
    if math.prod(max(size, 1) for size in shape) * element_bytes > MAX_BYTES:
        raise ValueError(f"no memory holds a tensor of shape {list(shape)}")


def is_dense_in_checkpoint(shape: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    """Return whether the elements fill a stretch of memory without gap or overlap, in whatever order."""
    expected = 1
    # From the fastest axis outwards each stride is the product of the sizes inside it; axes of length 1 may have any.
    for step, size in sorted(zip(stride, shape, strict=True)):
        if size > 1 and step != expected:
            return False
        expected *= size
    return True
