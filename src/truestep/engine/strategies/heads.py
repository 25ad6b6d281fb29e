# SPDX-License-Identifier: Apache-2.0
"""What stands at the head of the first message of an update: what a meeting would say, where the ranks do not meet for it.

The message has one size and type for all learners and ranks (`first_message.py`). It is summed, so each rank writes into words that
are zero on all others. A word is a whole number below 2²⁴, which single precision holds, too.
"""

from typing import NamedTuple

import torch
from torch import Tensor

NUM_HEAD_WORDS = 8
_HALF = 1 << 16


class RankHead(NamedTuple):
    """What a rank says of its update.

    Attributes:
        place: a sum of step, learners and of how many examples the backward was divided by.
        switches: a sum of which parameters train, and of the modes of layers.
        num_examples: how many the rank has.
        calls: how often it calls the loss for them.
        draws: whether the loss asked which of all examples the rank has.
    """

    place: int
    switches: int
    num_examples: int
    calls: int
    draws: bool

    def words(self) -> list[int]:
        """Return it in whole numbers that single precision holds."""
        halves = [half for each in self[:3] for half in divmod(each, _HALF)]
        return [*halves, self.calls, int(self.draws)]

    @classmethod
    def of_words(cls, words: list[float]) -> "RankHead":
        """Return what was written as these words."""
        highs, lows = words[0:6:2], words[1:6:2]
        place, switches, num_examples = (
            int(high) * _HALF + int(low) for high, low in zip(highs, lows, strict=True)
        )
        return cls(place, switches, num_examples, int(words[6]), bool(words[7]))


def num_head_numbers(size: int) -> int:
    """Return how much of a message the heads of so many ranks take."""
    return size * NUM_HEAD_WORDS


def write_rank_head(head: RankHead, into: Tensor, *, rank: int, size: int) -> None:
    """Write this rank's head; the words of the others are made zero."""
    into.zero_()
    into.view(size, NUM_HEAD_WORDS)[rank] = torch.tensor(head.words(), dtype=into.dtype)


def read_rank_heads(summed: Tensor, size: int) -> list[RankHead]:
    """Return the heads of all ranks."""
    return [RankHead.of_words(words) for words in summed.view(size, NUM_HEAD_WORDS).tolist()]
