# SPDX-License-Identifier: Apache-2.0
"""Where the reading of a pass through a stream stands, and what was read of it."""

from typing import Any

from truestep.engine.data.batch_digest import ReadRecord, chained_digest
from truestep.engine.data.stream_batches import StreamedBatch, StreamStart
from truestep.engine.data.stream_reader import FEW


class _WorkerPlace:
    """The newest states of one worker's stream, and what was read behind each."""

    def __init__(self, states: list[dict[str, Any]]) -> None:
        self._states = states

    @property
    def state(self) -> dict[str, Any] | None:
        """Return the newest that enough was read behind to know whether it gives the same again; None where none is so old."""
        return next((each for each in reversed(self._states) if _can_verify_state(each)), None)

    def advance(self, piece: StreamedBatch) -> None:
        """Note a batch that is handed out, and the state behind it."""
        self._states = [  # new ones: a checkpoint may be writing those
            each | {"since": each["since"] + 1, "digest": chained_digest(each["digest"], piece.digest)}
            for each in self._states
        ]
        self.note_state(piece)
        while len(self._states) > 1 and _can_verify_state(self._states[1]):
            del self._states[0]

    def note_state(self, piece: StreamedBatch) -> None:
        """Note the state behind what was read so far."""
        if piece.state is not None:
            self._states.append(piece.state | {"since": 0, "digest": ""})


def _can_verify_state(state: dict[str, Any]) -> bool:
    return bool(state["ended"] or state["since"] >= FEW or state.get("was_saved"))


class StreamPlace:
    """The place in one pass: each worker's state, whose turn it is, and a record of the batches."""

    def __init__(self, epoch: int, num_readers: int) -> None:
        self.epoch, self.record = epoch, ReadRecord()
        self.batches = 0
        """How many were handed out; more than were read where other ranks had rows and this one had none left."""
        self.seconds = self.longest = 0.0
        """That reading took in this process, all of it and its longest batch."""
        self._workers = [_WorkerPlace([]) for _ in range(num_readers)]
        self._turn = 0
        self._goes_on = False

    def start(self, *, only_compares: bool = False) -> StreamStart:
        """Return where reading begins: at the front, or where the state was taken that was loaded."""
        states = self.worker_states() if self._goes_on or only_compares else None
        if states is None:
            return StreamStart(self.epoch)
        return StreamStart(self.epoch, states, self._turn, only_compares)

    def worker_states(self) -> list[dict[str, Any]] | None:
        """Return each worker's state; None where one has none."""
        states = [each.state for each in self._workers]
        return None if None in states else [state for state in states if state is not None]

    def note_worker_end(self, piece: StreamedBatch) -> None:
        """Note that a worker's stream is over."""
        self._workers[piece.worker].note_state(piece)

    def advance(self, piece: StreamedBatch | None) -> None:
        """Note a batch that is handed out; None where it has no rows of this stream."""
        self.batches += 1
        if piece is not None:
            self.record.add(piece.digest, piece.num_samples or 0)
            self.seconds += piece.seconds
            self.longest = max(self.longest, piece.seconds)
            self._workers[piece.worker].advance(piece)
            self._turn = (piece.worker + 1) % len(self._workers)

    def state_dict(self, *, with_states: bool = True) -> dict[str, Any]:
        """Return the place as it is now; without the stream's states it is one to be read up to again."""
        place = {"epoch": self.epoch, "batches": self.batches, "turn": self._turn}
        states = [each.state if with_states else None for each in self._workers]
        return place | {"workers": states, "read": self.record.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from where the state was taken."""
        self._workers = [_WorkerPlace([_with_missing_fields(each)]) for each in state["workers"]]
        self._turn, self._goes_on, self.batches = state["turn"], True, state["batches"]
        self.record = ReadRecord(state.get("read") or _unknown_read_record(state["batches"]))


def can_resume_stream(state: dict[str, Any], start: int) -> bool:
    """Whether every worker's stream told its state behind the batch of that number."""
    return bool(state) and state["batches"] == start and all(each is not None for each in state["workers"])


def _with_missing_fields(state: dict[str, Any]) -> dict[str, Any]:
    """Return a worker's state; in the place of what an older checkpoint lacks, that nothing was read behind it."""
    return {"since": 0, "digest": ""} | state | {"was_saved": True}


def _unknown_read_record(batches: int) -> dict[str, Any]:
    """Return the record of a checkpoint that has none."""
    return {"samples": 0, "stride": 1, "at": [batches], "digests": [""]}
