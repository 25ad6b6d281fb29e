# SPDX-License-Identifier: Apache-2.0
"""Which NumPy dtype a torch dtype is, and to which it widens where there is none."""

from typing import Any

import numpy as np
import torch

from truestep.core.errors import OptionError

# A test compares this table with what the installed torch does.
NUMPY: dict[torch.dtype, np.dtype[Any]] = {
    torch.bool: np.dtype(np.bool_),
    torch.uint8: np.dtype(np.uint8),
    torch.uint16: np.dtype(np.uint16),
    torch.uint32: np.dtype(np.uint32),
    torch.uint64: np.dtype(np.uint64),
    torch.int8: np.dtype(np.int8),
    torch.int16: np.dtype(np.int16),
    torch.int32: np.dtype(np.int32),
    torch.int64: np.dtype(np.int64),
    torch.float16: np.dtype(np.float16),
    torch.float32: np.dtype(np.float32),
    torch.float64: np.dtype(np.float64),
    torch.complex64: np.dtype(np.complex64),
    torch.complex128: np.dtype(np.complex128),
}
TORCH = {theirs: ours for ours, theirs in NUMPY.items()}


def widened(dtype: torch.dtype) -> torch.dtype:
    """Return the smallest dtype that NumPy has and that holds every value of `dtype`."""
    if dtype in NUMPY:
        return dtype
    return torch.complex64 if dtype.is_complex else torch.float32  # both hold all that 16 bits and fewer can


def has_values(dtype: torch.dtype) -> bool:
    """Whether elements of `dtype` are numbers, one each: packed and sub-byte types, bits and quantised ones are not."""
    return dtype in NUMPY or dtype.is_complex or (dtype.is_floating_point and not str(dtype).endswith("_x2"))


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
