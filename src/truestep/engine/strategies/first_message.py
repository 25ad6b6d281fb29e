# SPDX-License-Identifier: Apache-2.0
"""The first message of an update: one size and one type for all learners and ranks.

At its head stands what a meeting would say, where the ranks do not meet for it. It is summed, so each rank writes into words that
are zero on all others; a word is a whole number below 2²⁴, which single precision holds, too. Behind the gradients ride numbers in
double precision, each written as three of single precision that add up to it, into slots that are zero on all other ranks.

gloo ends the process, or goes on with wrong sums, where sizes differ, and ranks may have come for updates of different learners.
All learners are there before the first update, and their shapes are compared. So the message is as large as all of a small
learner's gradients need, and the update is this one message.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

NUM_HEAD_WORDS = 10
_HALF = 1 << 16


class RankMessageHead(NamedTuple):
    """What a rank says of its update.

    Attributes:
        place: a sum of step and learners.
        switches: a sum of which parameters train, and of the modes of layers.
        num_examples: how many the rank has.
        num_expected: how many the backward was divided by.
        calls: how often it calls the loss for them.
        draws: whether the loss asked which of all examples the rank has.
    """

    place: int
    switches: int
    num_examples: int
    num_expected: int
    calls: int
    draws: bool

    def words(self) -> list[int]:
        """Return it in whole numbers that single precision holds."""
        halves = [half for each in self[:4] for half in divmod(each, _HALF)]
        return [*halves, self.calls, int(self.draws)]

    @classmethod
    def from_words(cls, words: Sequence[float]) -> "RankMessageHead":
        """Return what was written as these words."""
        *halves, calls, draws = map(int, words)
        pairs = zip(halves[::2], halves[1::2], strict=True)
        place, switches, examples, expected = (upper * _HALF + lower for upper, lower in pairs)
        return cls(place, switches, examples, expected, calls, bool(draws))


def num_head_numbers(size: int) -> int:
    """Return how much of a message the heads of so many ranks take."""
    return size * NUM_HEAD_WORDS


def write_rank_head(head: RankMessageHead, into: Tensor, *, rank: int, size: int) -> None:
    """Write this rank's head; the words of the others are made zero. Heads are the host's: they travel by gloo."""
    words = into.numpy()
    words[:] = 0
    words.reshape(size, NUM_HEAD_WORDS)[rank] = head.words()


def read_rank_heads(summed: Tensor, size: int) -> list[RankMessageHead]:
    """Return the heads of all ranks."""
    return [
        RankMessageHead.from_words(words) for words in summed.numpy().reshape(size, NUM_HEAD_WORDS).tolist()
    ]


_PARTS = 3  # of 24 bits each, for the 53 of a double


def num_bucket_slots(num_numbers: int, size: int) -> int:
    """Return how many slots so many numbers need on so many ranks."""
    return num_numbers * size * _PARTS


def write_bucket_riders(numbers: Tensor, into: Tensor, *, rank: int, size: int) -> None:
    """Write this rank's numbers (float64, in the range of the slots' type) into the slots, which are zero."""
    if into.is_cpu:
        _write_slots_on_host(numbers.numpy(), into.numpy().reshape(size, _PARTS, -1)[rank])
        return
    slots = into.view(size, _PARTS, -1)[rank]
    parts = [numbers.to(into.dtype)]
    rest = numbers
    for _ in range(1, _PARTS):
        rest = rest - parts[-1]
        parts.append(rest.to(into.dtype))
    torch.stack(parts, out=slots)
    slots[1:].nan_to_num_(0, 0, 0)  # of an infinity nothing remains


@np.errstate(invalid="ignore", over="ignore")
def _write_slots_on_host(rest: Any, slots: Any) -> None:
    # by NumPy, whose operations on a few numbers take a third of torch's
    slots[0] = rest
    for part in range(1, _PARTS):
        rest = rest - slots[part - 1]
        rest[~np.isfinite(rest)] = 0
        slots[part] = rest


def read_bucket_riders(slots: Tensor, num_numbers: int, *, size: int) -> Tensor:
    """Return the sums over all ranks, in float64; the same bits on each."""
    if slots.is_cpu:
        with np.errstate(invalid="ignore"):
            parts = slots.numpy().reshape(size, _PARTS, num_numbers)
            return torch.from_numpy(np.add.reduce(parts, axis=1, dtype=np.float64)).sum(0)
    return slots.view(size, _PARTS, num_numbers).to(torch.float64).sum(1).sum(0)


LEAST_BYTES = 1 << 16  # with gloo on one machine 64 KiB take as long as 1 (docs/log.md)
MOST_BYTES = 1 << 20  # a first bucket of torch's DistributedDataParallel
# sent by the smallest learner for a larger one: more takes longer than a second message
MOST_SPARE_BYTES = 1 << 18
_ROUND_BYTES = 1 << 12
_ROOM_FOR_NUMBERS = 16  # of each rank: what rides when nothing is measured, and some metrics

_WIRE = {torch.float16: torch.float32, torch.bfloat16: torch.float32}


def communication_dtype(dtype: torch.dtype) -> torch.dtype:
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
        sizes = {id(each): (each.numel(), communication_dtype(each.dtype)) for each in parameters}
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
