# SPDX-License-Identifier: Apache-2.0
"""`ts.to_numpy`: a tensor's values as an array."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from truestep.core.errors import OptionError
from truestep.nn.arrays.pairs import NUMPY, has_values, torch_dtype, widened
from truestep.nn.arrays.rounding import check_copy, convert, plain_tensor

Array = np.ndarray[Any, Any]


def to_numpy(tensor: Tensor, *, dtype: Any = None, copy: bool = True, max_rounding: float = 0.0) -> Array:
    """Return the values of `tensor` as an array, exactly, wherever it lies and whether or not it requires a gradient.

    The array is contiguous, writable and has memory of its own. It knows nothing of the graph: no gradient flows through it.

    Args:
        tensor: of any shape, on any device; conjugate and negative views are resolved.
        dtype: the array's, if it shall not be the tensor's. `np.float32` holds every bfloat16, float16 and float8.
        copy: False shares the memory, or raises where it can't be shared: then writing one changes the other.
        max_rounding: by how much of itself `dtype` may change a value. 0.0 refuses any change, `math.inf` none.

    Raises:
        OptionError: where NumPy has no such dtype (bfloat16, float8, complex32) and none is given; where values would change by
            more than `max_rounding`, with the largest change; for sparse, nested, quantised, packed and meta tensors.
    """
    values = plain_tensor(tensor)
    target = _target(values.dtype, dtype)
    check_copy(copy)
    if not copy:
        return _shared(tensor, target)
    values = values.cpu().resolve_conj().resolve_neg()
    return np.array(convert(values, target, max_rounding=max_rounding).numpy(), order="C")


def _target(source: torch.dtype, dtype: Any) -> torch.dtype:
    if not has_values(source):
        raise OptionError(
            f"{source} holds no plain numbers. For its bytes write tensor.view(torch.uint8); for the numbers of a "
            "quantised tensor tensor.dequantize()."
        )
    if dtype is None and source not in NUMPY:
        wide = str(widened(source)).removeprefix("torch.")
        raise OptionError(
            f"NumPy has no {str(source).removeprefix('torch.')}. Write dtype=np.{wide}, which holds each of its values exactly; "
            f"or take the bits: tensor.view(torch.uint{8 * source.itemsize})."
        )
    target = source if dtype is None else torch_dtype(dtype)
    if target not in NUMPY:
        raise OptionError(f"NumPy has no {target}. There are: {', '.join(map(str, NUMPY.values()))}.")
    return target


def _shared(tensor: Tensor, target: torch.dtype) -> Array:
    refusals = {
        "it lies on another device": tensor.device.type != "cpu",
        f"{tensor.dtype} becomes {target}": tensor.dtype != target,
        "its conjugation or sign is applied only when it is read": tensor.is_conj() or tensor.is_neg(),
        "it requires a gradient, and autograd does not see what is written into an array; write tensor.detach() if nobody "
        "writes": tensor.requires_grad,
    }
    for reason, holds in refusals.items():
        if holds:
            raise OptionError(
                f"copy=False can't share the memory of this tensor: {reason}. Leave copy=False away for a copy."
            )
    array: Array = tensor.numpy()
    return array
