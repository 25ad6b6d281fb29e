# SPDX-License-Identifier: Apache-2.0
"""One number a sample, as users give them: read in pieces, so that a hundred million take no second copy."""

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from truestep.core.errors import DataError

PIECE = 1 << 20  # numbers that are looked at together

Numbers = npt.NDArray[np.float64]


class SampleNumbers:
    """Weights or lengths of samples: a list, an array (one that is mapped from a file, too) or a tensor."""

    def __init__(self, name: str, values: Any) -> None:
        """Take what the user calls `name`; nothing is copied but a list."""
        self._name, self._kind = name, type(values).__name__
        self._values = values.detach() if isinstance(values, torch.Tensor) else self._to_array(values)
        self.shape = tuple(self._values.shape)

    def _to_array(self, values: Any) -> npt.NDArray[Any]:
        try:
            return np.asarray(values)
        except (TypeError, ValueError) as error:
            raise self._not_numbers_error() from error

    def _not_numbers_error(self) -> DataError:
        return DataError(f"{self._name} must be numbers, one per sample; this is a {self._kind}.")

    def pieces(self) -> Iterator[tuple[int, Numbers]]:
        """Yield the numbers in their order, some at a time, each with the number of the first; not to be written to."""
        if not self.shape:
            raise self._not_numbers_error()
        for start in range(0, self.shape[0], PIECE):
            piece = self._values[start : start + PIECE]
            plain = piece.cpu().to(torch.float64).numpy() if isinstance(piece, torch.Tensor) else piece
            try:
                yield start, np.asarray(plain, dtype=np.float64)
            except (TypeError, ValueError) as error:
                raise self._not_numbers_error() from error

    def check_one_per_sample(self, num_samples: int) -> "SampleNumbers":
        """Raise a DataError unless there is one finite number of at least 0 for each sample; return the same."""
        if self.shape != (num_samples,):
            next(self.pieces(), None)  # what are no numbers at all is said first
            raise DataError(
                f"{self._name} has shape {self.shape} and the data has {num_samples} samples: which number belongs "
                f"to which sample is unclear. Give one number per sample, shape ({num_samples},)."
            )
        wrong, first = 0, (0, 0.0)
        for start, piece in self.pieces():
            found = np.flatnonzero(~np.isfinite(piece) | (piece < 0))
            if found.size and not wrong:
                first = start + int(found[0]), float(piece[found[0]])
            wrong += found.size
        if wrong:
            raise DataError(
                f"{self._name}[{first[0]}] is {first[1]:g}; {wrong} of {num_samples} {self._name} are "
                "negative, infinite or NaN, and mean nothing here. Give finite numbers of at least 0."
            )
        return self

    def digest(self) -> str:
        """Return what tells these numbers from others."""
        found = hashlib.blake2b(digest_size=16)
        for _, piece in self.pieces():
            found.update(np.ascontiguousarray(piece).data)
        return found.hexdigest()
