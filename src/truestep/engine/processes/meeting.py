# SPDX-License-Identifier: Apache-2.0
"""A meeting of all ranks: small numbers, the first of which says what a rank has come for, and at which step."""

import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from truestep.engine.processes.world import World

MOST_NUMBERS = 8  # that one meeting carries


class WorldMeeting:
    """A meeting under way."""

    def __init__(self, world: "World", what: str, numbers: Sequence[float], called: str = "") -> None:
        self._world, self._what, self._count = world, what, len(numbers)
        self._called = called or what  # while it is waited for
        # Not `hash`, which is another in each process; 32 bits are exact in float64.
        self._tag = zlib.crc32(f"{world.step} {what}".encode())
        mine = torch.zeros(MOST_NUMBERS + 1, dtype=torch.float64)
        mine[: self._count + 1] = torch.tensor([self._tag, *numbers], dtype=torch.float64)
        self._all = [torch.empty_like(mine) for _ in range(world.size)]
        control = world.links.control
        self._work = world.begin(lambda: dist.all_gather(self._all, mine, group=control, async_op=True))
        self._numbers: list[list[float]] | None = None

    def wait(self) -> list[list[float]]:
        """Return every rank's numbers, in the order of ranks; raises a RankError where ranks came for different things."""
        if self._numbers is None:
            self._world.wait(self._work, self._called)
            found = torch.stack(self._all).tolist()
            if any(numbers[0] != self._tag for numbers in found):
                raise self._world.apart(self._what)
            self._numbers = [numbers[1 : self._count + 1] for numbers in found]
        return self._numbers
