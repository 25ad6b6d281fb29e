# SPDX-License-Identifier: Apache-2.0
"""Updates for which the ranks do not meet: what they would say stands at the head of the first message (`first_message.py`).

How many examples the batch has is known from the order of the data, whatever the loop makes of it: each backward is divided by that
number, and the true weight, which comes with the gradients, mends what differs. What can't be mended are numbers that a loss has
drawn for other examples than it has: such an attempt is taken back on all ranks, which meet from then on.
"""

import zlib
from collections.abc import Callable, Sequence

from truestep.engine.data.rank_data_check import refuse_other_rows
from truestep.engine.processes.batch_row_shares import RankShare
from truestep.engine.processes.world import World
from truestep.engine.strategies.base import AttemptTakenBackError
from truestep.engine.strategies.first_message import RankMessageHead


class UnmetUpdates:
    """The updates of one set of learners; `may_ride` says whether a head may stand in their first message."""

    def __init__(self, world: World, what: str, may_ride: Callable[[], bool]) -> None:
        self._world, self._what, self._may_ride = world, what, may_ride
        self._rides = False
        self._knows = False  # of a first update, for which all have met
        self._drew = self._are_odd = False
        self._is_doubtful = self._must_meet = False
        self._mine = RankMessageHead(0, 0, 0, 0, 0, draws=False)
        self._given: tuple[int | None, tuple[int, ...] | None] = None, None
        self._shares: list[int] = []  # of the examples, by the order
        self.num_expected: int | None = None
        """How many examples the whole batch has as its order says; None where the ranks have to ask each other."""
        self.is_one = False
        """Whether the update under way is one for which they do not meet."""

    @property
    def may_be_taken_back(self) -> bool:
        """Whether an attempt may have to be taken back: once a loss has drawn, or a count was not that of the order."""
        return self._is_doubtful and not self._must_meet

    def begin(self, count: int, calls: int, switches: int, *, as_given: bool) -> None:
        """Take note of what this rank has, and decide whether all meet."""
        self._rides = self._may_ride()
        # Where the others had to meet until now they still may: one rank alone has changed the modes of its layers.
        self._knows = self._knows and self._rides
        known = self._world.num_given if as_given and self._rides else None
        given = (known, self._world.shares_given)
        if given != self._given:
            self._given, self.num_expected = given, known
            self._shares = self._rows_per_rank(known or 0)
        place = zlib.crc32(f"{self._world.step} {self._what} {known is None}".encode())
        self._mine = RankMessageHead(place, switches, count, known or 0, calls, draws=False)
        self.is_one = known is not None and self._knows and not self._must_meet

    def _rows_per_rank(self, number: int) -> list[int]:
        if self._world.shares_given is not None:
            return list(self._world.shares_given)
        parts = [RankShare(rank, self._world.size).of(number) for rank in range(self._world.size)]
        return [part.stop - part.start for part in parts]

    def note_draw(self) -> None:
        """The loss asks which of all examples this rank has."""
        self._mine = self._mine._replace(draws=True)

    def first(self) -> int:
        """Return the first of this rank's examples as the order says."""
        self.note_draw()
        return sum(self._shares[: self._world.rank])

    @property
    def has_calls(self) -> bool:
        """Whether this rank calls the loss with examples of its own."""
        return self._mine.calls > 0

    def head(self) -> RankMessageHead | None:
        """Return what this rank says; None where gradients travel without."""
        return self._mine if self._rides else None

    def agree(self, heads: Sequence[RankMessageHead]) -> bool:
        """Whether all are here for this update, train the same, and have drawn for the examples that they have."""
        is_drawn_otherwise = any(each.draws for each in heads) and self._differs_from_order(heads)
        alike = len({(each.place, each.switches, each.num_expected) for each in heads}) == 1
        return not self.is_one or (alike and not is_drawn_otherwise)

    def _differs_from_order(self, heads: Sequence[RankMessageHead]) -> bool:
        return self.num_expected is not None and [each.num_examples for each in heads] != self._shares

    def refuse_other_updates(self, heads: Sequence[RankMessageHead]) -> None:
        """Raise where the ranks have come for different updates; learn whether one may have to be taken back."""
        if self.is_one and any(each.place != self._mine.place for each in heads):
            raise self._world.apart(self._what)
        if self.is_one:
            refuse_other_rows(self._what, [each.num_expected for each in heads])
        self._knows = True
        self._drew = any(each.draws for each in heads)
        self._are_odd = self._differs_from_order(heads)
        self._is_doubtful = self._is_doubtful or self._drew or self._are_odd

    def check(self) -> None:
        """Take the attempt back where what was drawn belongs to other examples."""
        if self._drew and self._are_odd:
            self._must_meet, self.is_one = True, False
            raise AttemptTakenBackError
