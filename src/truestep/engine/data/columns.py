# SPDX-License-Identifier: Apache-2.0
"""Tensors that lie in memory, one row a sample: found, checked, and taken many rows at a time."""

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import Subset, TensorDataset

from truestep.core import nested_structures
from truestep.core.errors import DataError
from truestep.core.tensor_bytes import bytes_of_contiguous
from truestep.core.text_formatting import a_type

Column = torch.Tensor | npt.NDArray[Any]

ROWS_IN_FINGERPRINT = 16
_NUMBERS = "biufc"  # NumPy's letters: booleans, whole numbers with and without sign, floats, complex numbers
_WITHOUT_NUMPY = (torch.bfloat16, torch.complex32, torch.float8_e4m3fn, torch.float8_e5m2)


class DataColumns:
    """A structure of tensors or arrays of the same leading size, and which of its rows are samples."""

    def __init__(self, tree: Any, rows: npt.NDArray[np.int64] | None = None) -> None:
        named = list(nested_structures.batch_leaves(tree, "data"))
        _check_columns(named)
        self.tree = tree
        self.rows = rows
        self.is_mapped = any(isinstance(leaf, np.memmap) for _, leaf in named)
        """Whether a part lies in a file that is mapped (`np.load(..., mmap_mode="r")`)."""
        self.leaves: list[Column] = [_as_tensor(leaf) for _, leaf in named]
        places = {name: place for place, (name, _) in enumerate(named)}
        self._by_name = [places[name] for name, _ in nested_structures.batch_leaves_by_name(tree, "data")]
        self.num_samples = len(self.leaves[0]) if rows is None else len(rows)
        self.bytes_per_sample = sum(leaf.nbytes for leaf in self.leaves) // max(len(self.leaves[0]), 1)
        self.is_flat_tuple = type(tree) is tuple and len(tree) == len(self.leaves)
        self.is_leaf = nested_structures.batch_children(tree) is None

    def __len__(self) -> int:
        return self.num_samples

    def __getitem__(self, index: int) -> Any:
        row = index if self.rows is None else int(self.rows[index])
        return self.fill(tuple(leaf[row] for leaf in self.leaves))

    def to(self, device: torch.device) -> None:
        """Keep the tensors on `device` from now on."""
        self.leaves = [leaf.to(device) if isinstance(leaf, torch.Tensor) else leaf for leaf in self.leaves]

    def fill(self, values: tuple[Any, ...]) -> Any:
        """Return one batch: the structure with `values` in the places of its leaves."""
        if self.is_flat_tuple:
            return values
        return values[0] if self.is_leaf else nested_structures.fill_batch(self.tree, iter(values))

    def describe_sample(self) -> list[str]:
        """Return type and shape of a sample, leaf by leaf."""
        leaves = [self.leaves[place] for place in self._by_name]
        return [f"{leaf.dtype} {tuple(leaf.shape[1:])}" for leaf in leaves]

    def digest(self) -> str:
        """Return a hash of a few rows spread over the data: cheap, and enough to notice other data."""
        rows = np.unique(np.linspace(0, self.num_samples - 1, ROWS_IN_FINGERPRINT).astype(np.int64))
        rows = rows if self.rows is None else self.rows[rows]
        hashed = hashlib.blake2b(digest_size=16)
        for leaf in [self.leaves[place] for place in self._by_name]:
            few = leaf[torch.from_numpy(rows)].cpu() if isinstance(leaf, torch.Tensor) else leaf[rows]
            hashed.update(column_to_bytes(few))
        return hashed.hexdigest()


def take_sample_rows(column: torch.Tensor, rows: npt.NDArray[np.int64]) -> torch.Tensor:
    """Return `rows` of a tensor in the memory of the host, in the same memory format.

    One thread copies rows as fast as memory goes; several, as `index_select` takes, wait for each other
    whenever a worker or another program has the processor.
    """
    if column.dtype in _WITHOUT_NUMPY:
        return column.index_select(0, torch.from_numpy(rows))
    inner = sorted(range(1, column.ndim), key=column.stride, reverse=True)
    dense = column.permute(0, *inner)  # as it lies in memory: channels_last images, for one
    if not dense.is_contiguous():
        return column.index_select(0, torch.from_numpy(rows))
    taken = torch.from_numpy(np.take(dense.numpy(), rows, axis=0))
    return taken.permute(0, *(1 + inner.index(dim) for dim in range(1, column.ndim)))


def take_sample_array_rows(column: npt.NDArray[Any], rows: npt.NDArray[np.int64]) -> Column:
    """Return `rows` of an array: as a tensor, or an array where torch has no such type."""
    taken = column[rows]
    if taken.dtype.kind not in _NUMBERS:
        return taken
    return torch.from_numpy(taken.astype(taken.dtype.newbyteorder("="), copy=False))


def column_to_bytes(value: Column) -> bytes:
    """Return the bytes that `value` holds, whatever its type and device."""
    if isinstance(value, torch.Tensor):
        return bytes_of_contiguous(value.detach().cpu().contiguous()).numpy().tobytes()
    return repr(value.tolist()).encode() if value.dtype == object else value.tobytes()


def find_data_columns(data: Any) -> DataColumns | None:
    """Return the tensors in memory that `data` consists of, or None where it is something else."""
    rows: npt.NDArray[np.int64] | None = None
    while type(data) is Subset:
        indices = np.asarray(data.indices, dtype=np.int64)
        rows = indices if rows is None else indices[rows]
        data = data.dataset
    if type(data) is TensorDataset:
        data = data.tensors
    # A list is not looked into: it holds samples, one after the other.
    if isinstance(data, (torch.Tensor, np.ndarray, tuple)):
        return DataColumns(data, rows)
    return DataColumns(data, rows) if isinstance(data, Mapping) or _is_data_class_of_tensors(data) else None


def _is_data_class_of_tensors(data: Any) -> bool:
    parts = None if isinstance(data, list) else nested_structures.batch_children(data)
    return bool(parts) and all(isinstance(part, (torch.Tensor, np.ndarray)) for _, part in parts or [])


def _as_tensor(leaf: Column) -> Column:
    """Return an array as a tensor over the same memory, where torch has such a tensor."""
    if isinstance(leaf, torch.Tensor):
        # a leaf that needs a gradient would keep every batch's graph
        return leaf.detach()
    plain = leaf.dtype.isnative and leaf.dtype.kind in _NUMBERS and leaf.dtype.itemsize <= 16
    if not (plain and leaf.flags.writeable and all(stride >= 0 for stride in leaf.strides)):
        return leaf  # a read-only memory map, text: rows are taken by numpy
    try:
        return torch.from_numpy(leaf)
    # NumPy has numbers that torch lacks (long double)
    except TypeError:
        return leaf


def _check_columns(named: list[tuple[str, Any]]) -> None:
    if not named:
        raise DataError("data is an empty structure: there is no tensor in it. Give at least one tensor.")
    for name, leaf in named:
        if not isinstance(leaf, (torch.Tensor, np.ndarray)):
            instead = f"{name}.to_numpy()" if hasattr(leaf, "to_numpy") else "..."  # of pandas
            raise DataError(
                f"{name} is {a_type(leaf)}, not a tensor or an array. A tuple or dict given as data "
                f"holds columns, one row a sample. Write torch.tensor({instead}) for this column, or give a list of "
                "samples or a data set with __len__ and __getitem__."
            )
        if isinstance(leaf, torch.Tensor) and leaf.layout != torch.strided:
            raise DataError(
                f"{name} is a {leaf.layout} tensor, whose rows can't be taken by number. Write "
                f"{name}.to_dense(), or give a data set whose __getitem__ makes one dense row."
            )
        if leaf.ndim == 0:
            raise DataError(
                f"{name} is a single number, so it has no samples to take a batch of. Give it one row a "
                "sample, or add it to the loss instead."
            )
    if len({len(leaf) for _, leaf in named}) > 1:
        sizes = ", ".join(f"{name} has {len(leaf)}" for name, leaf in named)
        raise DataError(
            f"the columns differ in their number of rows: {sizes}. Row i of every column makes sample i, so "
            "batches would pair the wrong rows. Cut or reorder the columns so that they agree."
        )
