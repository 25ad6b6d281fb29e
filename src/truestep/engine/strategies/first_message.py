# SPDX-License-Identifier: Apache-2.0
"""The first message of an update: one size and one type for all learners and ranks.

gloo ends the process, or goes on with wrong sums, where sizes differ, and ranks may have come for updates of different learners.
All learners are there before the first update, and their shapes are compared. So the message is as large as all of a small
learner's gradients need, and the update is this one message.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from truestep.engine.strategies.heads import num_head_numbers
from truestep.engine.strategies.riders import num_bucket_slots

LEAST_BYTES = 1 << 16  # with gloo on one machine 64 KiB take as long as 1 (docs/log.md)
MOST_BYTES = 1 << 20  # a first bucket of torch's DistributedDataParallel
# sent by the smallest learner for a larger one: more takes longer than a second message
MOST_SPARE_BYTES = 1 << 18
_ROUND_BYTES = 1 << 12
_ROOM_FOR_NUMBERS = 16  # of each rank: what rides when nothing is measured, and some metrics

_WIRE = {torch.float16: torch.float32, torch.bfloat16: torch.float32}


def wire_type(dtype: torch.dtype) -> torch.dtype:
    """Return the type in which gradients of this one travel."""
    return _WIRE.get(dtype, dtype)


class FirstMessage:
    """The size of the first message of every update, by the learners there are; the same on all of so many ranks."""

    def __init__(self, num_ranks: int) -> None:
        self._num_ranks = num_ranks
        self._types: set[torch.dtype] = set()
        self._needs: list[int] = []
        self.num_bytes = LEAST_BYTES
        """Its size."""

    def add(self, parameters: Iterable[Tensor]) -> None:
        """A learner is made of these parameters; those that are frozen now count, too, as they may train on one rank alone."""
        sizes = {id(each): (each.numel(), wire_type(each.dtype)) for each in parameters}
        self._types |= {dtype for _, dtype in sizes.values()}
        num_riders = 1 + len(sizes) + num_bucket_slots(_ROOM_FOR_NUMBERS, self._num_ranks)
        num_riders += num_head_numbers(self._num_ranks)
        itemsize = max((dtype.itemsize for dtype in self._types), default=1)
        self._needs.append(sum(number for number, _ in sizes.values()) * itemsize + num_riders * itemsize)
        self.num_bytes = self._chosen_num_bytes()

    def _chosen_num_bytes(self) -> int:
        small = [need for need in self._needs if need <= MOST_BYTES]
        most = max(min(small, default=0), LEAST_BYTES) + MOST_SPARE_BYTES
        need = max((need for need in small if need <= most), default=0)
        return max(-(-need // _ROUND_BYTES) * _ROUND_BYTES, LEAST_BYTES)

    @property
    def has_one_type(self) -> bool:
        """Whether all gradients travel in one type: gloo cuts messages between numbers."""
        return len(self._types) == 1
