# SPDX-License-Identifier: Apache-2.0
"""Tensors of one type put one behind the other, so that many travel as one message."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

PIECE_BYTES = 25 * 2**20


class FlatPiece:
    """The memory that some tensors of one type and device travel in; complex numbers as pairs."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._tensors = [each.detach() for each in tensors]
        sizes = [each.numel() for each in tensors]
        first = tensors[0]
        flat = torch.empty(sum(sizes), dtype=first.dtype, device=first.device)
        parts = flat.split_with_sizes(sizes)
        self._views = [part.view(each.shape) for part, each in zip(parts, tensors, strict=True)]
        self.sent = torch.view_as_real(flat) if flat.is_complex() else flat
        """What is to be sent, or received into."""

    def fill(self) -> None:
        """Copy the tensors in."""
        for view, tensor in zip(self._views, self._tensors, strict=True):
            view.copy_(tensor)

    def write_back(self) -> None:
        """Copy what has arrived into the tensors."""
        for view, tensor in zip(self._views, self._tensors, strict=True):
            tensor.copy_(view)


def divide_into_pieces(tensors: Sequence[Tensor], limit_bytes: int = PIECE_BYTES) -> Iterator[list[Tensor]]:
    """Give the tensors in lists of one type and device, of at most so many bytes unless one tensor alone has more."""
    together: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}
    num_bytes: dict[tuple[torch.dtype, torch.device], int] = {}
    for tensor in tensors:
        kind = tensor.dtype, tensor.device
        if together.get(kind) and num_bytes[kind] + tensor.nbytes > limit_bytes:
            yield together[kind]
            together[kind], num_bytes[kind] = [], 0
        together.setdefault(kind, []).append(tensor)
        num_bytes[kind] = num_bytes.get(kind, 0) + tensor.nbytes
    yield from (each for each in together.values() if each)
