# SPDX-License-Identifier: Apache-2.0
"""What stands at the head of the first message of an update: what a meeting would say, where the ranks do not meet for it.

The message has one size and type for all learners and ranks (`first_message.py`). It is summed, so each rank writes into words that
are zero on all others. A word is a whole number below 2²⁴, which single precision holds, too.
"""

from collections.abc import Sequence
from typing import NamedTuple

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
    def of_words(cls, words: Sequence[float]) -> "RankHead":
        """Return what was written as these words."""
        a, b, c, d, e, f, calls, draws = map(int, words)
        return cls(a * _HALF + b, c * _HALF + d, e * _HALF + f, calls, bool(draws))


def num_head_numbers(size: int) -> int:
    """Return how much of a message the heads of so many ranks take."""
    return size * NUM_HEAD_WORDS


def write_rank_head(head: RankHead, into: Tensor, *, rank: int, size: int) -> None:
    """Write this rank's head; the words of the others are made zero. Heads are the host's: they travel by gloo."""
    words = into.numpy()
    words[:] = 0
    words.reshape(size, NUM_HEAD_WORDS)[rank] = head.words()


def read_rank_heads(summed: Tensor, size: int) -> list[RankHead]:
    """Return the heads of all ranks."""
    return [RankHead.of_words(words) for words in summed.numpy().reshape(size, NUM_HEAD_WORDS).tolist()]
