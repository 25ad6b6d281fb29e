# SPDX-License-Identifier: Apache-2.0
"""The values of two lists of tensors, exchanged in pieces: little memory is needed, and whatever interrupts it is put right."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

HOST_BYTES = 1 << 20  # stays in the processor's cache
DEVICE_BYTES = 64 << 20  # few kernels


def copy_values(places: list[Tensor], sources: list[Tensor]) -> None:
    """Copy values of tensors into others, if there are any."""
    if places:
        torch._foreach_copy_(places, sources)


class _TensorPiece(NamedTuple):
    left: list[Tensor]
    right: list[Tensor]


class _PieceBeforeExchange(NamedTuple):
    """What a piece was before its exchange began."""

    piece: _TensorPiece
    left: list[Tensor]
    right: list[Tensor]


class ValueExchange:
    """Exchanges the values of tensors with those of others, each of the same shape and type, and back.

    Whatever interrupts it, Ctrl+C included, `back` leaves everything as it was before.
    """

    def __init__(self, left: Sequence[Tensor], right: Sequence[Tensor]) -> None:
        self._pieces = list(_divide_into_pieces(left, right))
        # in one attribute, so that no interruption comes between the two
        self._at: tuple[int, _PieceBeforeExchange | None] = (0, None)

    @torch.no_grad()
    def exchange(self) -> None:
        """Give each tensor the values of the other."""
        for number in range(len(self._pieces)):
            self._swap_piece(number, then=number + 1)

    @torch.no_grad()
    def back(self) -> None:
        """Give back what was exchanged; called again it goes on where it was interrupted."""
        self._undo_half_exchange()
        # the last first: tensors may share memory
        while number := self._at[0]:
            self._swap_piece(number - 1, then=number - 1)

    def _swap_piece(self, number: int, *, then: int) -> None:
        piece = self._pieces[number]
        held = _PieceBeforeExchange(
            piece, [tensor.clone() for tensor in piece.left], [tensor.clone() for tensor in piece.right]
        )
        self._at = (self._at[0], held)
        copy_values(piece.left, held.right)
        copy_values(piece.right, held.left)
        self._at = (then, None)

    def _undo_half_exchange(self) -> None:
        """Take back the half of an exchange."""
        done, held = self._at
        if held is not None:
            copy_values(held.piece.left, held.left)
            copy_values(held.piece.right, held.right)
            self._at = (done, None)


def _divide_into_pieces(left: Sequence[Tensor], right: Sequence[Tensor]) -> Iterator[_TensorPiece]:
    """Yield small tensors together, and parts of large ones."""
    some, size = _TensorPiece([], []), 0
    for mine, other in zip(left, right, strict=True):
        most = HOST_BYTES if mine.is_cpu else DEVICE_BYTES
        for one, two in _slices_along_longest(mine.detach(), other.detach(), most):
            if some.left and size + one.nbytes > most:
                yield some
                some, size = _TensorPiece([], []), 0
            some.left.append(one)
            some.right.append(two)
            size += one.nbytes
    if some.left:
        yield some


def _slices_along_longest(one: Tensor, two: Tensor, most: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield a tensor and its other one along their longest dimension; they need not lie in a row."""
    if one.nbytes <= most:
        yield one, two
        return
    dim = max(range(one.dim()), key=one.size)
    length = one.size(dim)
    step = max(1, length * most // one.nbytes)
    for begin in range(0, length, step):
        size = min(step, length - begin)
        yield one.narrow(dim, begin, size), two.narrow(dim, begin, size)
