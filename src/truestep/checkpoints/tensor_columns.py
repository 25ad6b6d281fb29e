# SPDX-License-Identifier: Apache-2.0
"""The tensors of a checkpoint as columns: what format 3 says of them, in a tenth of the room. Imports no torch.

A row is a tensor, or the part of one that a process had, in the order of the files and of the places in them, so that where
it begins and ends need not be said. `names` shares with each name what the one before begins with: `[0,"net/a",4,"b"]` are
net/a and net/b. `dtypes` counts what lies in a row of the same dtype, `shapes` are those in the file. What few rows have
stands with the row's number: `strides` of an unusual order of memory, `keys` in the file that are not the name without the
first characters that the file says, `pieces` with the whole's shape and the offset in it.
"""

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate, groupby
from typing import Any, NamedTuple

from truestep.checkpoints.dtype_encoding import DTYPES, check_tensor_size
from truestep.checkpoints.manifest import (
    MAX_MANIFEST_BYTES,
    ManifestTensor,
    TensorShard,
    check_shard,
    check_size_numbers,
    shards_by_file,
)

COLUMNS = ("names", "dtypes", "shapes", "strides", "keys", "pieces")


class FileRowCounts(NamedTuple):
    """How many rows lie in a file, and how many characters of their names its own keys lack."""

    rows: int
    prefix: int


@dataclass(frozen=True)
class FileColumns:
    """What the columns have of one file: rows that stand there as they are, and the few that are said by their number in it."""

    rows: FileRowCounts
    texts: dict[str, bytes]
    few: dict[str, list[list[Any]]]


@dataclass(frozen=True)
class TensorColumns:
    """The text of each column, and what the columns leave to be said of each file."""

    texts: dict[str, bytes]
    files: dict[str, FileRowCounts]

    def rows_of(self, file: str) -> FileRowCounts:
        """Return what is to be said of a file; one without a tensor has no rows."""
        return self.files.get(file, FileRowCounts(0, 0))


def compact_json(value: Any) -> bytes:
    """Return JSON without spaces."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def encode_tensor_columns(tensors: dict[str, ManifestTensor], files: Iterable[str]) -> TensorColumns:
    """Return the columns of tensors that lie in these files, in the order of the files."""
    there = shards_by_file(tensors)
    return join_file_columns(
        {
            file: encode_file_columns([(name, shard, tensors[name]) for name, shard in there[file]])
            for file in files
            if file in there
        }
    )


def encode_file_columns(items: list[tuple[str, TensorShard, ManifestTensor]]) -> FileColumns:
    """Return what the columns have of a file: of each tensor in it, in their order, its name, what lies there, and the whole."""
    prefix = _key_prefix_length(*items[0][:2])
    strides: list[list[Any]] = []
    keys: list[list[Any]] = []
    pieces: list[list[Any]] = []
    for row, (name, shard, whole) in enumerate(items):
        if whole.stride is not None:
            strides.append([row, whole.stride])
        if name[prefix:] != shard.key:
            keys.append([row, shard.key])
        if shard.shape != whole.shape or any(shard.offset):
            pieces.append([row, whole.shape, shard.offset])
    dtypes = groupby(whole.dtype for _, _, whole in items)
    return FileColumns(
        FileRowCounts(len(items), prefix),
        {
            "names": _json_list_items(list(_front_code_names(name for name, _, _ in items))),
            "dtypes": _json_list_items([[sum(1 for _ in same), dtype] for dtype, same in dtypes]),
            "shapes": _json_list_items([shard.shape for _, shard, _ in items]),
        },
        {"strides": strides, "keys": keys, "pieces": pieces},
    )


def _json_list_items(values: list[Any]) -> bytes:
    """Return the text of a list without its brackets."""
    return compact_json(values)[1:-1]


def join_file_columns(files: dict[str, FileColumns]) -> TensorColumns:
    """Return the columns of all files."""
    texts = {
        name: b"[%s]" % b",".join(file.texts[name] for file in files.values())
        for name in ("names", "dtypes", "shapes")
    }
    firsts = list(accumulate((file.rows.rows for file in files.values()), initial=0))
    for name in ("strides", "keys", "pieces"):
        few = [
            [first + row, *rest]
            for first, file in zip(firsts, files.values(), strict=False)
            for row, *rest in file.few[name]
        ]
        texts[name] = compact_json(few)
    return TensorColumns(texts, {name: file.rows for name, file in files.items()})


def _key_prefix_length(name: str, shard: TensorShard) -> int:
    return len(name) - len(shard.key) if name.endswith(shard.key) else 0


def _front_code_names(names: Iterable[str]) -> Iterator[int | str]:
    """Yield how much each name shares with the one before, and the rest of it."""
    before = ""
    for name in names:
        # Bisection, since slices compare in one go.
        shared, beyond = 0, min(len(before), len(name)) + 1
        while beyond - shared > 1:
            middle = (shared + beyond) // 2
            if before[shared:middle] == name[shared:middle]:
                shared = middle
            else:
                beyond = middle
        yield shared
        yield name[shared:]
        before = name


def decode_tensor_columns(
    columns: dict[str, Any], files: dict[str, FileRowCounts]
) -> tuple[dict[str, ManifestTensor], tuple[str, ...]]:
    """Read columns, trusting nothing in them: return the tensors, and the name in each row.

    Raises KeyError, TypeError or ValueError for what `encode_tensor_columns` can't have made.
    """
    names = _decode_front_coded_names(columns["names"])
    rows = _DecodedColumns(
        names=names,
        dtypes=_decode_dtype_runs(columns["dtypes"], len(names)),
        shapes=columns["shapes"],
        keys=dict(_decode_sparse_rows(columns["keys"], len(names), 2)),
        pieces=dict(_decode_sparse_rows(columns["pieces"], len(names), 3)),
    )
    count = sum(file.rows for file in files.values())
    if not count == len(names) == len(rows.dtypes) == len(rows.shapes):
        raise ValueError(
            f"the files hold {count} tensors, the columns {len(names)} names, {len(rows.dtypes)} dtypes and "
            f"{len(rows.shapes)} shapes"
        )
    tensors: dict[str, ManifestTensor] = {}
    first = 0
    for file, (there, prefix) in files.items():
        rows.read_file(file, range(first, first + there), prefix, tensors)
        first += there
    for row, (stride,) in _decode_sparse_rows(columns["strides"], len(names), 2):
        tensors[names[row]] = tensors[names[row]]._replace(stride=check_size_numbers(stride))
    return tensors, tuple(names)


def _decode_front_coded_names(coded: Any) -> list[str]:
    found: list[str] = []
    before, total = "", 0
    for shared, rest in zip(coded[::2], coded[1::2], strict=True):
        if type(shared) is not int or not 0 <= shared <= len(before):
            raise ValueError(f"a name shares {shared!r} characters with {before[:200]!r}")
        before = before[:shared] + rest
        total += len(before)
        if total > MAX_MANIFEST_BYTES:  # a few bytes could stand for much memory
            raise ValueError("its names are longer than a manifest can be")
        found.append(before)
    return found


def _decode_dtype_runs(runs: Any, most: int) -> list[str]:
    found: list[str] = []
    for count, dtype in runs:
        if dtype not in DTYPES:
            raise ValueError(f"the dtype {dtype!r} is unknown")
        if type(count) is not int or not 0 < count <= most - len(found):
            raise ValueError(f"{count!r} tensors of {dtype} are too many among {most}")
        found += [dtype] * count
    return found


def _decode_sparse_rows(listed: Any, count: int, width: int) -> Iterator[tuple[int, list[Any]]]:
    """Yield the rows that have something, in order, and what they have."""
    last = -1
    for entry in listed:
        row, *rest = entry
        if type(row) is not int or not last < row < count or len(entry) != width:
            raise ValueError(f"{str(entry)[:200]} is said of row {row!r} of {count}, after row {last}")
        last = row
        yield row, rest


@dataclass(frozen=True, kw_only=True)
class _DecodedColumns:
    """Columns side by side."""

    names: list[str]
    dtypes: list[str]
    shapes: list[Any]
    keys: dict[int, list[Any]]
    pieces: dict[int, list[Any]]
    sizes: dict[tuple[str, tuple[int, ...]], tuple[tuple[int, ...], int]] = field(default_factory=dict)
    """Shapes that were checked, with their bytes, by the dtype."""

    def read_file(self, file: str, rows: range, prefix: int, tensors: dict[str, ManifestTensor]) -> None:
        """Add the rows of a file to the tensors."""
        at = 0
        for row in rows:
            name, dtype = self.names[row], self.dtypes[row]
            shape, size = self._checked_shape_and_bytes(dtype, tuple(self.shapes[row]))
            whole, offset = self._whole_shape_and_row_offset(row, dtype, shape)
            key = self.keys[row][0] if row in self.keys else name[prefix:]
            if type(key) is not str:
                raise ValueError(f"{key!r} is no name in a file")
            shard = TensorShard(file, key, at, at + size, offset, shape)
            at += size
            known = tensors.get(name)
            if known is None:
                check_shard(shard, whole)
                tensors[name] = ManifestTensor(dtype, whole, (shard,))
            else:
                tensors[name] = _add_shard_to_tensor(name, known, shard, dtype, whole)

    def _checked_shape_and_bytes(self, dtype: str, shape: tuple[Any, ...]) -> tuple[tuple[int, ...], int]:
        """Return a shape, checked, and its bytes."""
        found = self.sizes.get((dtype, shape))
        if found is None:
            element = DTYPES[dtype].element_bytes
            checked = check_size_numbers(shape)
            check_tensor_size(checked, element)
            found = self.sizes[dtype, checked] = checked, math.prod(checked) * element
        return found

    def _whole_shape_and_row_offset(
        self, row: int, dtype: str, shape: tuple[int, ...]
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the shape of the whole, and where the row lies in it."""
        if row not in self.pieces:
            return shape, (0,) * len(shape)
        whole, offset = self.pieces[row]
        return self._checked_shape_and_bytes(dtype, tuple(whole))[0], check_size_numbers(offset)


def _add_shard_to_tensor(
    name: str, known: ManifestTensor, shard: TensorShard, dtype: str, whole: tuple[int, ...]
) -> ManifestTensor:
    if (known.dtype, known.shape) != (dtype, whole):
        raise ValueError(f"{name!r} is {known.dtype} {known.shape} in one row and {dtype} {whole} in another")
    check_shard(shard, whole)
    return known._replace(shards=(*known.shards, shard))
