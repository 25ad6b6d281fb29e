# SPDX-License-Identifier: Apache-2.0
"""What the ranks of a run read, compared while it trains: before the first sample, at first batches, and at every save."""

from truestep.engine.data.rank_data_check import (
    ReadPlace,
    json_digest_number,
    refuse_other_data,
    refuse_other_reading,
)
from truestep.engine.processes.world import World
from truestep.run.cursor import RunCursor


class RankDataComparison:
    """Compares, while one pass leads, what the ranks read in it and beside it; alone there is nothing to compare."""

    def __init__(self, cursor: RunCursor, world: World | None) -> None:
        self._cursor, self._world = cursor, world
        self._streams: set[str] = set()  # on every rank
        self._given = 0

    def pass_begun(self) -> None:
        """Compare all data that is there."""
        if self._world is None:
            return
        data = {each.label: each.source.facts() for each in self._cursor.streams.values()}
        # a number of each rank travels, not its facts: those are fetched where numbers differ
        numbers = [number for (number,) in self._world.meet("the data of a pass", json_digest_number(data))]
        common = refuse_other_data(self._world, data, numbers)
        # only streams can drift apart: the order of other data follows from seed and epoch on every rank
        self._streams = {name for name in common if data[name].get("kind") in ("stream", "mixture")}
        self._given = 0

    def batch_given(self) -> None:
        """Compare what was read up to the leader's first batch of this pass, its second, fourth, eighth and so on."""
        if self._world is None or not self._streams:
            return
        self._given += 1
        # at powers of two: a difference shows in the first batches, and later looks cost next to nothing
        if self._given & (self._given - 1) == 0:
            read = read_places_by_label(self._cursor)
            refuse_other_reading(
                self._world, self._given, {name: read[name] for name in self._streams & read.keys()}
            )


def read_places_by_label(cursor: RunCursor) -> dict[str, ReadPlace]:
    """Return how far each stream was read, by what the user knows it by."""
    return {
        each.label: ReadPlace(
            each.number,
            each.batch,
            each.read_digest,
            each.source.form(),
            each.source.fingerprint().get("kind") == "mixture",
        )
        for each in cursor.streams.values()
        if each.read_digest
    }
