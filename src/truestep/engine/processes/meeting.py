# SPDX-License-Identifier: Apache-2.0
"""A meeting of all ranks: small numbers, the first of which says what a rank has come for, and at which step."""

import zlib
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from truestep.core.errors import RankError

MOST_NUMBERS = 8  # that one meeting carries


class WorldMeeting:
    """A meeting under way."""

    def __init__(
        self,
        purpose: str,
        numbers: Sequence[float],
        size: int,
        *,
        gather: Callable[[list[Tensor], Tensor], Callable[[], None]],
        apart: Callable[[], RankError],
    ) -> None:
        """Begin a meeting of `size` ranks: `gather` sends this one's numbers, and what it returns waits for those of all."""
        self._apart, self._count = apart, len(numbers)
        # Not `hash`, which is another in each process; 32 bits are exact in float64.
        self._tag = zlib.crc32(purpose.encode())
        mine = torch.zeros(MOST_NUMBERS + 1, dtype=torch.float64)
        mine[: self._count + 1] = torch.tensor([self._tag, *numbers], dtype=torch.float64)
        self._all = [torch.empty_like(mine) for _ in range(size)]
        self._arrive = gather(self._all, mine)
        self._numbers: list[list[float]] | None = None

    def wait(self) -> list[list[float]]:
        """Return every rank's numbers, in the order of ranks; raises a RankError where ranks came for different things."""
        if self._numbers is None:
            self._arrive()
            found = torch.stack(self._all).tolist()
            if any(numbers[0] != self._tag for numbers in found):
                raise self._apart()
            self._numbers = [numbers[1 : self._count + 1] for numbers in found]
        return self._numbers
