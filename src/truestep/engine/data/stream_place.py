# SPDX-License-Identifier: Apache-2.0
"""Where the reading of a pass through a stream stands, and what was read of it."""

from typing import Any

from truestep.engine.data.read_digest import ReadRecord
from truestep.engine.data.streaming import StreamedBatch, StreamStart


class StreamPlace:
    """The place in one pass: each worker's state, whose turn it is, and a record of the batches."""

    def __init__(self, epoch: int, num_readers: int) -> None:
        self.epoch, self.record = epoch, ReadRecord()
        self._workers: list[dict[str, Any] | None] = [None] * num_readers
        self._turn = 0
        self._goes_on = False

    @property
    def batches(self) -> int:
        """How many batches were handed out."""
        return self.record.batches

    def start(self) -> StreamStart:
        """Return where reading begins: at the front, or where the state was taken that was loaded."""
        if not self._goes_on:
            return StreamStart(self.epoch)
        return StreamStart(self.epoch, [each for each in self._workers if each is not None], self._turn)

    def advance(self, piece: StreamedBatch) -> None:
        """Note a batch that is handed out."""
        self.record.add(piece.digest, piece.num_samples or 0)
        self._workers[piece.worker] = piece.state
        self._turn = (piece.worker + 1) % len(self._workers)

    def state_dict(self) -> dict[str, Any]:
        """Return the place as it is now."""
        place = {"epoch": self.epoch, "batches": self.batches, "turn": self._turn}
        return place | {"workers": [*self._workers], "read": self.record.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from where the state was taken."""
        self._workers, self._turn, self._goes_on = [*state["workers"]], state["turn"], True
        self.record = ReadRecord(state.get("read") or _unknown(state["batches"]))


def can_go_on(state: dict[str, Any], start: int) -> bool:
    """Whether every worker's stream told its state behind the batch of that number."""
    return bool(state) and state["batches"] == start and all(each is not None for each in state["workers"])


def _unknown(batches: int) -> dict[str, Any]:
    """Return the record of a checkpoint that has none."""
    return {"samples": 0, "stride": 1, "at": [batches], "digests": [""]}
