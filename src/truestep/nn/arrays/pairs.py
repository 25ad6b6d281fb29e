# SPDX-License-Identifier: Apache-2.0
"""Which NumPy dtype a torch dtype is, and to which it widens where there is none."""

from typing import Any

import numpy as np
import torch

from truestep.core.errors import OptionError

# A test compares this table with what the installed torch does.
_COMMON = (
    "bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 float32 float64 complex64 complex128"
)
NUMPY: dict[torch.dtype, np.dtype[Any]] = {getattr(torch, name): np.dtype(name) for name in _COMMON.split()}
TORCH = {theirs: ours for ours, theirs in NUMPY.items()}


def widened(dtype: torch.dtype) -> torch.dtype:
    """Return the smallest dtype that NumPy has and that holds every value of `dtype`."""
    if dtype in NUMPY:
        return dtype
    return torch.complex64 if dtype.is_complex else torch.float32  # both hold all that 16 bits and fewer can


def has_values(dtype: torch.dtype) -> bool:
    """Whether elements of `dtype` are numbers, one each: packed and sub-byte types, bits and quantised ones are not."""
    return dtype in NUMPY or dtype.is_complex or (dtype.is_floating_point and not str(dtype).endswith("_x2"))


def check_values(dtype: torch.dtype) -> None:
    """Raise an OptionError unless elements of `dtype` are numbers."""
    if not has_values(dtype):
        raise OptionError(
            f"{dtype} holds no plain numbers. For its bytes write tensor.view(torch.uint8); for the numbers of a "
            "quantised tensor tensor.dequantize()."
        )


def name_of(dtype: torch.dtype) -> str:
    """Return a dtype's name as NumPy writes it."""
    return str(dtype).removeprefix("torch.")


def torch_dtype(dtype: Any) -> torch.dtype:
    """Return the torch dtype that a torch or NumPy dtype names, or raise an OptionError that lists what there is."""
    if isinstance(dtype, torch.dtype):
        return dtype
    try:
        return TORCH[np.dtype(dtype).newbyteorder("=")]
    except (TypeError, KeyError) as error:
        raise OptionError(
            f"dtype={dtype!r} is none that torch has. There are: {', '.join(map(str, TORCH))}, and torch's own."
        ) from error
