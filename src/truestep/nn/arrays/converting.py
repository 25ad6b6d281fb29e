# SPDX-License-Identifier: Apache-2.0
"""`ts.from_numpy` and `ts.to_numpy`: the same values on the other side."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from truestep.core.device_specific import require_usable_device
from truestep.core.errors import OptionError
from truestep.nn.arrays.dtype_conversion import (
    NUMPY,
    TORCH,
    array_dtype_name,
    check_dtype_has_numbers,
    convert_with_rounding,
    tensor_for_numpy,
    torch_dtype_from_numpy,
    widen_for_numpy,
)

Array = np.ndarray[Any, Any]

# by NumPy's letter for the kind of a dtype
_NO_NUMBERS = {
    "O": "holds Python objects. Write array.astype(np.float64) if they are numbers; np.stack(list) if they are arrays of one shape",
    "U": "holds text. Number the words (np.unique(array, return_inverse=True)), or parse numbers with array.astype(np.float64)",
    "S": "holds bytes. Write np.frombuffer(array, np.uint8) for the bytes, or parse numbers with array.astype(np.float64)",
    "M": "holds dates. Write array.astype('datetime64[s]').astype(np.int64) for seconds since 1970; NaT becomes -2**63",
    "m": "holds durations. Write array / np.timedelta64(1, 's') for seconds",
    "T": "holds text. Number the words (np.unique(array, return_inverse=True))",
}


def from_numpy(
    array: Array | np.generic,
    *,
    dtype: Any = None,
    device: str | torch.device = "cpu",
    copy: bool = True,
    max_rounding: float = 0.0,
) -> Tensor:
    """Return the values of `array` as a tensor, exactly, whatever its strides and byte order.

    The tensor is contiguous and has memory of its own. Its dtype is the array's: NumPy makes float64, so a model of float32
    wants `dtype=torch.float32` and says with `max_rounding` how far values may move (2**-24 for this pair).

    Args:
        array: of booleans, whole, real or complex numbers; read-only, reversed and big-endian arrays too; any memmap.
        dtype: the tensor's, if not the array's; also one that NumPy lacks, like `torch.bfloat16`.
        device: where to put it. `torch.set_default_device` has no say, as with `torch.from_numpy`.
        copy: False shares the memory, or raises where it can't be shared: then writing one changes the other.
        max_rounding: by how much of itself `dtype` may change a value. 0.0 refuses any change, `math.inf` none.

    Raises:
        OptionError: for text, objects, dates, records and masked arrays, with what to write; where values would change by more
            than `max_rounding`, with the largest change.
    """
    _check_array(array)
    given = np.asarray(array)
    target = TORCH[given.dtype.newbyteorder("=")] if dtype is None else torch_dtype_from_numpy(dtype)
    place = require_usable_device(device)
    if not copy:
        return _tensor_sharing_array(array, target, place)
    native = np.array(given, dtype=given.dtype.newbyteorder("="), order="C")
    return convert_with_rounding(torch.from_numpy(native), target, max_rounding=max_rounding).to(place)


def _check_array(array: Any) -> None:
    if isinstance(array, np.ma.MaskedArray):
        raise OptionError(
            "A masked array's hidden values would become numbers like any other. Write array.filled(0), or keep "
            "np.ma.getmaskarray(array) as a tensor of its own."
        )
    if not isinstance(array, np.ndarray | np.generic):
        raise OptionError(f"{type(array).__name__} is no array. Write torch.tensor(x) or np.asarray(x).")
    if names := array.dtype.names:
        raise OptionError(f"It holds records of {', '.join(names)}. Convert each field: array[{names[0]!r}].")
    if array.dtype.kind in _NO_NUMBERS:
        raise OptionError(f"An array of {array.dtype} {_NO_NUMBERS[array.dtype.kind]}.")
    if array.dtype.newbyteorder("=") not in TORCH:
        size = array.dtype.itemsize
        bits = f"array.view(np.uint{8 * size})" if size in (1, 2) else "array.astype(np.float64)"
        raise OptionError(
            f"torch has no {array.dtype}. Write {bits}, and look what that changes. There are: {', '.join(map(str, TORCH))}."
        )


def _tensor_sharing_array(array: Any, target: torch.dtype, device: torch.device) -> Tensor:
    if not isinstance(array, np.ndarray):
        raise OptionError("copy=False can't share a NumPy scalar, which has no memory to write to.")
    refusals = {
        "the tensor lies on another device": device.type != "cpu",
        f"{array.dtype} becomes {target}": TORCH[array.dtype.newbyteorder("=")] != target,
        "its bytes are in the other order": not array.dtype.isnative,
        "it is read-only, and torch has no read-only tensors": not array.flags.writeable,
        "torch has no negative strides": any(stride < 0 for stride in array.strides),
        "its strides are no multiples of its elements": any(
            stride % array.itemsize for stride in array.strides
        ),
    }
    _refuse_sharing_memory("array", refusals)
    return torch.from_numpy(np.asarray(array))


def to_numpy(tensor: Tensor, *, dtype: Any = None, copy: bool = True, max_rounding: float = 0.0) -> Array:
    """Return the values of `tensor` as an array, exactly, wherever it lies and whether or not it requires a gradient.

    The array is contiguous, writable and has memory of its own. It knows nothing of the graph: no gradient flows through it.

    Args:
        tensor: of any shape, on any device; conjugate and negative views are resolved.
        dtype: the array's, if not the tensor's. `np.float32` holds every bfloat16, float16 and float8.
        copy: False shares the memory, or raises where it can't be shared: then writing one changes the other.
        max_rounding: by how much of itself `dtype` may change a value. 0.0 refuses any change, `math.inf` none.

    Raises:
        OptionError: where NumPy has no such dtype (bfloat16, float8, complex32) and none is given; where values would change by
            more than `max_rounding`, with the largest change; for sparse, nested, quantised, packed and meta tensors.
    """
    values = tensor_for_numpy(tensor)
    target = _numpy_compatible_dtype(values.dtype, dtype)
    if not copy:
        return _array_sharing_tensor(tensor, target)
    values = values.cpu().resolve_conj().resolve_neg()
    return np.array(convert_with_rounding(values, target, max_rounding=max_rounding).numpy(), order="C")


def _numpy_compatible_dtype(source: torch.dtype, dtype: Any) -> torch.dtype:
    check_dtype_has_numbers(source)
    if dtype is None and source not in NUMPY:
        raise OptionError(
            f"NumPy has no {array_dtype_name(source)}. Write dtype=np.{array_dtype_name(widen_for_numpy(source))}, which holds "
            f"each of its values exactly; or take the bits: tensor.view(torch.uint{8 * source.itemsize})."
        )
    target = source if dtype is None else torch_dtype_from_numpy(dtype)
    if target not in NUMPY:
        raise OptionError(f"NumPy has no {target}. There are: {', '.join(map(str, NUMPY.values()))}.")
    return target


def _array_sharing_tensor(tensor: Tensor, target: torch.dtype) -> Array:
    refusals = {
        "it lies on another device": tensor.device.type != "cpu",
        f"{tensor.dtype} becomes {target}": tensor.dtype != target,
        "its conjugation or sign is applied only when it is read": tensor.is_conj() or tensor.is_neg(),
        "it requires a gradient, and autograd does not see what is written into an array; write tensor.detach() if nobody "
        "writes": tensor.requires_grad,
    }
    _refuse_sharing_memory("tensor", refusals)
    array: Array = tensor.numpy()
    return array


def _refuse_sharing_memory(what: str, refusals: Mapping[str, bool]) -> None:
    if reasons := [reason for reason, holds in refusals.items() if holds]:
        raise OptionError(f"copy=False can't share this {what}: {reasons[0]}. Leave it away for a copy.")
