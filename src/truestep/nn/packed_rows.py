# SPDX-License-Identifier: Apache-2.0
"""Several short sequences in one row, so that little of a batch is padding."""

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from truestep.core.errors import BatchError
from truestep.core.text_formatting import plural


@dataclass(frozen=True, kw_only=True, eq=False)
class PackedRows:
    """Where each sequence lies in rows of one length; made by `ts.pack_rows`.

    Attributes:
        lengths: of the sequences, in the caller's order.
        row_length: of the rows.
        places: (row, first position) of each sequence, in the caller's order.
        sequence_ids: (rows, row_length) the number of the sequence at each position, -1 in padding.
        positions: (rows, row_length) the position within its own sequence, 0 in padding: for position embeddings.
    """

    lengths: tuple[int, ...]
    row_length: int
    places: tuple[tuple[int, int], ...]
    sequence_ids: Tensor
    positions: Tensor

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return len(self.sequence_ids)

    @property
    def padding_share(self) -> float:
        """Which share of all positions is padding."""
        return 1 - sum(self.lengths) / self.sequence_ids.numel()

    @property
    def padding_share_unpacked(self) -> float:
        """Which share would be padding with one sequence a row, padded to the longest."""
        return 1 - sum(self.lengths) / (len(self.lengths) * max(self.lengths))

    def pack(self, sequences: Sequence[Tensor], *, padding_value: float = 0) -> Tensor:
        """Return sequences (length, ...) in rows (rows, row_length, ...), in the same places for inputs, labels and masks."""
        if [len(each) for each in sequences] != list(self.lengths):
            raise BatchError(
                f"The {len(sequences)} sequences have lengths {[len(each) for each in sequences][:8]}; these rows were made for "
                f"{list(self.lengths[:8])}. Make them of the lengths at hand: ts.pack_rows([len(s) for s in sequences], ...)."
            )
        first = sequences[0]
        rows = first.new_full((self.num_rows, self.row_length, *first.shape[1:]), padding_value)
        for (row, start), sequence in zip(self.places, sequences, strict=True):
            rows[row, start : start + len(sequence)] = sequence
        return rows

    def unpack(self, rows: Tensor) -> list[Tensor]:
        """Return the sequences of rows (rows, row_length, ...), in the caller's order, as views."""
        if rows.shape[:2] != self.sequence_ids.shape:
            raise BatchError(
                f"rows has shape {tuple(rows.shape)}; expected {tuple(self.sequence_ids.shape)} and whatever follows."
            )
        pairs = zip(self.places, self.lengths, strict=True)
        return [rows[row, start : start + length] for (row, start), length in pairs]

    def attention_mask(self, *, causal: bool = False) -> Tensor:
        """Return (rows, 1, row_length, row_length), True where a position may look: at its own sequence alone.

        The form that `F.scaled_dot_product_attention(..., attn_mask=)` takes. A padded position looks at itself, since a row of
        False would give NaN.
        """
        same = self.sequence_ids[:, :, None] == self.sequence_ids[:, None, :]
        is_padding = self.sequence_ids < 0
        itself = torch.eye(self.row_length, dtype=torch.bool, device=same.device)
        same = torch.where(is_padding[:, :, None], itself, same)
        return (same.tril() if causal else same)[:, None]

    def to(self, device: Any) -> "PackedRows":
        """Return the same with its tensors on `device`."""
        return replace(self, sequence_ids=self.sequence_ids.to(device), positions=self.positions.to(device))

    def __repr__(self) -> str:
        return (
            f"PackedRows({plural(len(self.lengths), 'sequence')} in {plural(self.num_rows, 'row')} of {self.row_length}, "
            f"{self.padding_share:.1%} padding)"
        )


def pack_rows(lengths: Sequence[int] | Tensor, row_length: int) -> PackedRows:
    """Choose a place for each sequence in rows of `row_length`, so that few rows are needed (best fit, longest first).

    The same lengths give the same places. Inputs, labels and masks are brought there by `PackedRows.pack`; attention stays within a
    sequence with `PackedRows.attention_mask`.

    Args:
        lengths: of the sequences, at least 1 and at most `row_length`.
        row_length: positions in a row.
    """
    numbers = [int(length) for length in (lengths.tolist() if isinstance(lengths, Tensor) else lengths)]
    _check_row_lengths(numbers, row_length)
    places = _pack_best_fit_decreasing(numbers, row_length)
    num_rows = 1 + max(row for row, _ in places)
    ids = torch.full((num_rows, row_length), -1)
    positions = torch.zeros(num_rows, row_length, dtype=torch.int64)
    for number, ((row, start), length) in enumerate(zip(places, numbers, strict=True)):
        ids[row, start : start + length] = number
        positions[row, start : start + length] = torch.arange(length)
    return PackedRows(
        lengths=tuple(numbers),
        row_length=row_length,
        places=tuple(places),
        sequence_ids=ids,
        positions=positions,
    )


def _check_row_lengths(lengths: list[int], row_length: int) -> None:
    if not lengths:
        raise BatchError("ts.pack_rows was given no lengths; there is nothing to put into rows.")
    if min(lengths) < 1:
        raise BatchError(f"lengths holds {min(lengths)}; leave empty sequences out.")
    if max(lengths) > row_length:
        long = [number for number, length in enumerate(lengths) if length > row_length]
        raise BatchError(
            f"{len(long)} sequences ({long[:6]}) are longer than row_length={row_length}; the longest has {max(lengths)}. "
            "Cut them first, or give longer rows: a sequence that goes on in another row would not see its beginning."
        )


def _pack_best_fit_decreasing(lengths: list[int], row_length: int) -> list[tuple[int, int]]:
    """Put each sequence, longest first, into the fullest row that still has room."""
    places = [(0, 0)] * len(lengths)
    room: list[tuple[int, int]] = []  # (free positions, row), sorted
    rows = 0
    for number in sorted(range(len(lengths)), key=lambda number: (-lengths[number], number)):
        length = lengths[number]
        index = bisect_left(room, (length, -1))
        if index == len(room):
            free, row = row_length, rows
            rows += 1
        else:
            free, row = room.pop(index)
        places[number] = (row, row_length - free)
        if free > length:
            insort(room, (free - length, row))
    return places
