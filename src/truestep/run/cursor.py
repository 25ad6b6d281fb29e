# SPDX-License-Identifier: Apache-2.0
"""Where a run stands: its epoch, its step, and the place in each stream of batches.

A pass through a stream is one `for batch in run.batches(source)`. Passes are numbered, and the number is the epoch that
the source's order is drawn from. The stream whose loop began first is the leader: its batches are what `run.step` counts,
and the moment it is asked for its next batch is the only one at which a run is saved. So two streams read together
(`zip`, or one loop inside the other) are saved at the same batch of the leader.
"""

from dataclasses import dataclass, field
from typing import Any

from truestep.engine.data import BatchSource
from truestep.errors import DataError


@dataclass
class Stream:
    """The place in one source of batches."""

    name: str
    source: BatchSource
    number: int = -1
    """The pass that is under way, or was last."""
    batch: int = 0
    """How many batches of it are done."""
    passes: int = 0
    """Passes begun in this epoch while no other stream led."""
    finished: bool = False
    """Whether the last of them is over: all batches were read, or the loop was left."""
    beside: bool = False
    """Whether the last pass was begun while another stream led."""
    in_body: bool = False
    """Whether a batch was given out that is not done."""
    is_read: bool = False
    interrupted: bool = False
    """Whether the last pass was left by an exception: its last body is half done."""
    _over: int = 0
    _resumed: bool = False

    def check_free(self) -> None:
        """Raise a DataError while a loop around this one reads the same source."""
        if self.is_read:
            raise DataError(
                f"{self.name!r} is being read already, in a loop around this one, and a source has one place. Make a second source "
                "of the same data with run.data."
            )

    def begin(self, *, leads: bool) -> bool:
        """Begin a pass, or go on with the one that was under way at a save; return False where it was over then.

        After a resume the loop's code runs again from the top of its epoch, so passes that were over yield nothing.
        """
        if self._over:
            self._over -= 1
            return False
        if self._resumed:
            self._resumed = False
            return not self.finished
        self.number += 1
        self.passes += leads
        self.beside = not leads
        self.batch = 0
        self.finished = self.interrupted = False
        return True

    @property
    def is_behind(self) -> bool:
        """Whether passes are still to come that were under way or over when the run was saved."""
        return bool(self._over) or self._resumed

    def end_epoch(self) -> None:
        """The next pass is the first of an epoch."""
        self.passes = self._over = 0
        self._resumed = self.in_body = self.beside = self.interrupted = False

    def state_dict(self) -> dict[str, Any]:
        """Return the place, and what a source without places keeps instead."""
        return {
            "number": self.number,
            # Between two batches of the leader the body is over for what was read beside it, too.
            "batch": self.batch + self.in_body,
            "passes": self.passes,
            "finished": self.finished,
            "beside": self.beside,
            "source": self.source.state_dict(),
            "fingerprint": self.source.fingerprint(),
        }

    def check(self, state: dict[str, Any]) -> None:
        """Raise a DataError unless the data is what the place was saved with."""
        now, saved = self.source.fingerprint(), state["fingerprint"]
        if now != saved:
            raise DataError(
                f"The data of {self.name!r} is not what the run was saved with ({'; '.join(_changed(saved, now))}), so the same "
                "batches can't be given. Go on with the same data, or start a new run in another directory."
            )

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over the place."""
        self.number, self.batch = state["number"], state["batch"]
        self.passes, self.finished, self.beside = state["passes"], state["finished"], state["beside"]
        if self.beside:
            # Read beside a leader whose bodies are done: what was over there is not gone through again.
            self._over, self._resumed = self.passes, not self.finished
        else:
            self._over, self._resumed = max(self.passes - 1, 0), self.passes > 0
        self.source.load_state_dict(state["source"])


def _changed(saved: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Return what differs of two fingerprints, with the values of both."""
    found = []
    for key in sorted(saved.keys() | now.keys()):
        before, after = saved.get(key), now.get(key)
        if before == after:
            continue
        if isinstance(before, dict) and isinstance(after, dict):
            found += _changed(before, after)
        elif key == "content":
            found.append("the content of its samples differs")
        else:
            found.append(f"{key} was {before}, is {after}")
    return found


@dataclass
class Cursor:
    """Where a run stands."""

    epoch: int = 0
    step: int = 0
    """Batches given out so far."""
    done: int = 0
    """Batches whose body is over: what a save counts."""
    streams: dict[str, Stream] = field(default_factory=dict)
    leader: Stream | None = None

    def stream_of(self, source: BatchSource) -> Stream:
        """Return the stream of a source that `run.data` made."""
        for stream in self.streams.values():
            if stream.source is source:
                return stream
        raise DataError(
            f"run.batches was given a {type(source).__name__} that run.data did not make, so it has no order or place that a "
            "resumed run could find again. Write train = run.data(data_set, batch_size=...) once, before the loop."
        )

    def state_dict(self) -> dict[str, Any]:
        """Return the place in everything."""
        streams = {name: stream.state_dict() for name, stream in self.streams.items()}
        return {"epoch": self.epoch, "step": self.done, "streams": streams}

    def end_epoch(self) -> None:
        """Go on to the next epoch."""
        self.done = self.step  # also where a loop was left by break
        self.epoch += 1
        for stream in self.streams.values():
            stream.end_epoch()

    def check(self, state: dict[str, Any]) -> None:
        """Raise a DataError unless the streams are those that were saved."""
        for name, saved in state["streams"].items():
            if name not in self.streams:
                raise DataError(
                    f"The run was saved with the data {name!r}, which is not there now. Call run.data as often and in the same "
                    "order as when it was saved, before the loop."
                )
            self.streams[name].check(saved)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over the place in everything."""
        self.epoch, self.step, self.done = state["epoch"], state["step"], state["step"]
        for name, saved in state["streams"].items():
            self.streams[name].load_state_dict(saved)
