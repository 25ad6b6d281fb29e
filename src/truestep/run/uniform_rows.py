# SPDX-License-Identifier: Apache-2.0
"""Long lists of rows of one kind, as a replay buffer has: kept as columns, since a checkpoint spends a while on each array."""

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from truestep.core.device_specific import is_cpu_device

FEWEST_ROWS = 32
_NUMBERS = {bool: np.bool_, int: np.int64, float: np.float64}
_ROW_TYPES = (tuple, list, dict)


def columns_of(rows: Any) -> list[Sequence[Any]] | None:
    """Return the columns of rows of one type and one length, or with the same names, arrays and tensors among their values.

    A list of arrays or tensors is one column. None for what is shorter, or of another form.
    """
    if len(rows) < FEWEST_ROWS or (len(kinds := set(map(type, rows))) > 1):
        return None
    (kind,) = kinds
    if kind in (np.ndarray, Tensor):
        return [rows]
    if kind not in _ROW_TYPES or len(set(map(len, rows))) > 1 or not rows[0]:
        return None
    at = [*rows[0]] if kind is dict else range(len(rows[0]))
    if kind is dict and any([*each] != at for each in rows):
        return None
    columns: list[Sequence[Any]] = [
        [*map(itemgetter(each), rows)] for each in at
    ]  # zip(*rows) takes ten times as long
    return columns if any(isinstance(each[0], np.ndarray | np.generic | Tensor) for each in columns) else None


def encode_rows(rows: Any, encode: Callable[[Any], Any]) -> dict[str, Any] | None:
    """Return rows of one kind by columns, what can't be packed by `encode`; None for other rows."""
    columns = columns_of(rows)
    if columns is None or _is_memory_shared(columns):
        return None
    packed = [_pack(each, encode) for each in columns]
    if all(each["kind"] == "values" for each in packed):
        return None
    first = rows[0]
    return {
        "is_tuple": type(rows) is tuple,
        "row": type(first).__name__ if type(first) in _ROW_TYPES else None,
        "names": [*first] if type(first) is dict else [],
        "columns": packed,
    }


def decode_rows(tree: dict[str, Any], decode: Callable[[Any], Any]) -> Any:
    """Undo `encode_rows`; each array and each tensor has memory of its own."""
    columns = [_unpack(each, decode) for each in tree["columns"]]
    rows: list[Any]
    if tree["row"] is None:
        rows = columns[0]
    elif tree["row"] == "dict":
        rows = [dict(zip(tree["names"], each, strict=True)) for each in zip(*columns, strict=True)]
    else:
        rows = (
            [*zip(*columns, strict=True)]
            if tree["row"] == "tuple"
            else [[*each] for each in zip(*columns, strict=True)]
        )
    return tuple(rows) if tree["is_tuple"] else rows


def _is_memory_shared(columns: Sequence[Sequence[Any]]) -> bool:
    """Tell tensors that lie in one another's memory, which they go on doing: each is kept as it is."""
    tensors = [each for column in columns for each in column if isinstance(each, Tensor)]
    return len({each.untyped_storage().data_ptr() for each in tensors}) < len(tensors)


def _pack(column: Sequence[Any], encode: Callable[[Any], Any]) -> dict[str, Any]:
    """Return a column as one tensor or one array where its values are of one kind, else value by value."""
    first, kinds = column[0], set(map(type, column))
    if kinds <= _NUMBERS.keys() and len(kinds) == 1:
        try:
            numbers: Any = np.array(column, _NUMBERS[type(first)])
            return {"kind": type(first).__name__, "values": torch.from_numpy(numbers)}
        except OverflowError:  # an integer of more than 64 bits
            return {"kind": "values", "values": encode(list(column))}
    if kinds == {np.ndarray} and len({(each.dtype, each.shape) for each in column}) == 1:
        return {"kind": "array", "values": encode(np.stack(column, dtype=first.dtype))}
    if len(kinds) == 1 and isinstance(first, np.number | np.bool_):
        return {"kind": "scalar", "values": encode(np.array(column, dtype=first.dtype))}
    if (
        kinds == {Tensor}
        and len({(each.dtype, each.shape) for each in column}) == 1
        and all(map(_is_plain, column))
    ):
        return {"kind": "tensor", "values": torch.stack(list(column))}
    return {"kind": "values", "values": [encode(each) for each in column]}


def _is_plain(tensor: Tensor) -> bool:
    is_dense = tensor.layout is torch.strided and is_cpu_device(tensor.device) and not tensor.is_quantized
    return (
        is_dense
        and tensor.is_contiguous()
        and not (tensor.requires_grad or tensor.is_conj() or tensor.is_neg())
    )


def _unpack(column: dict[str, Any], decode: Callable[[Any], Any]) -> list[Any]:
    kind, values = column["kind"], column["values"]
    if kind in ("bool", "int", "float"):
        found: list[Any] = values.tolist()
        return found
    if kind == "tensor":
        return [each.clone() for each in values]
    if kind == "array":
        arrays = decode(values)
        return [arrays[number, ...].copy() for number in range(len(arrays))]  # also where they have no axes
    return [*decode(values)]
