# SPDX-License-Identifier: Apache-2.0
"""Where a run stands: its epoch, its step, and which of its streams leads.

A pass through a stream is one `for batch in run.batches(source)`. Passes are numbered, and the number is the epoch that
the source's order is drawn from. The stream whose loop began first is the leader: its batches are what `run.step` counts,
and the moment it is asked for its next batch is the only one at which a run is saved. So two streams read together
(`zip`, or one loop inside the other) are saved at the same batch of the leader.
"""

from dataclasses import dataclass, field
from typing import Any

from truestep.run.run_streams import RunStreams
from truestep.run.stream_cursor import StreamCursor


@dataclass
class RunCursor:
    """Where a run stands."""

    epoch: int = 0
    step: int = 0
    """Batches given out so far."""
    done: int = 0
    """Batches whose body is over: what a save counts."""
    most_updates: int = 0
    """Of all bodies so far."""
    streams: RunStreams = field(default_factory=RunStreams)
    leader: StreamCursor | None = None
    finished: bool = False
    """Whether `run.finish()` ended the run, however much there would still be to do."""
    cut: bool = False
    """Whether that left a pass of this epoch undone, or in its middle."""
    in_epoch_body: bool = False
    """Whether the body of an epoch has begun and not come to its end; also behind a loop over the epochs that was left."""
    is_broken_off: bool = False
    """Whether the loop over the epochs was left by `break` or `return`, as far as can be seen."""
    left: bool = False
    """Whether a loop was left before its last batch, and nothing has followed yet."""
    epochs: object | None = None
    """Stands for the loop over `run.epochs` that runs now."""
    half_done: bool = False
    """Whether an interrupt left a body in its middle, and the run goes on being there: in a notebook."""

    def body_done(self) -> None:
        """A body of the leader is over, and counts."""
        # a stream that is still read when the leader's body ends lives on beside it, as in zip
        self.done = self.step
        for stream in self.streams.values():
            stream.crossed = stream.crossed or (stream.beside and stream.reader is not None)

    def go_on(self) -> None:
        """Something follows on a loop that was left: its pass is over, as it was meant to be."""
        self.left = self.half_done = False
        for stream in self.streams.values():
            if stream.is_left and self.finished and stream.has_more():
                self.cut_short(stream)
            elif stream.is_left:
                stream.end()
        # the next loop to begin leads; its first batch comes after all that was given out
        if self.leader is not None and (self.leader.finished or self.cut):
            self.leader, self.done = None, self.step

    def cut_short(self, stream: StreamCursor) -> None:
        """`run.finish()` ended a pass before its last batch; a run that is taken up again goes on there."""
        self.cut = True
        stream.stop_reading()

    def take_up(self) -> None:
        """The loop was left to the notebook: what runs it again goes on here, as a resumed run does."""
        # asked first: it is what `epochs` says, which is forgotten here
        in_epochs = self.in_epochs
        self.left, self.leader, self.epochs, self.in_epoch_body = False, None, None, False
        for stream in self.streams.values():
            stream.take_up(body=in_epochs)

    @property
    def in_epochs(self) -> bool:
        """Whether the body of an epoch runs, which runs again from its top after a resume."""
        return self.epochs is not None

    @property
    def is_behind_a_pass(self) -> bool:
        """Whether a body that is resumed here comes, or may come, to a pass that is over and gives it nothing."""
        streams = [stream for stream in self.streams.values() if stream.passes]
        return sum(stream.passes for stream in streams) > 1 or any(map(StreamCursor.may_be_over, streams))

    @property
    def is_in_first_pass(self) -> bool:
        """Whether no pass of this epoch is over that a resumed body would find empty."""
        return sum(stream.passes for stream in self.streams.values()) <= 1

    @property
    def is_within(self) -> bool:
        """Whether a loop reads now, or was left and nothing has followed."""
        return self.left or any(stream.reader is not None for stream in self.streams.values())

    @property
    def in_body(self) -> bool:
        """Whether a batch was given out that is not done; between two of the leader's none is."""
        streams = self.streams.values() if self.leader is None else [self.leader]
        return any(stream.in_body for stream in streams)

    def num_left(self, stream: StreamCursor, limit: int | None) -> int | None:
        """Return how many batches a loop over a stream that begins now gives; None where nobody knows."""
        return 0 if self.finished else stream.num_left(limit)

    def state_dict(self) -> dict[str, Any]:
        """Return the place in everything."""
        streams = {name: stream.state_dict() for name, stream in self.streams.items()}
        return {
            "epoch": self.epoch,
            "step": self.done,
            "streams": streams,
            "finished": self.finished,
            "behind": self.is_behind_a_pass,
            "most_updates": self.most_updates,
        }

    def end_epoch(self) -> None:
        """Go on to the next epoch."""
        # a loop that was left in this epoch is over with it
        self.go_on()
        self.leader, self.done = None, self.step
        self.epoch += 1
        for stream in self.streams.values():
            stream.end_epoch()

    @property
    def is_in_loop(self) -> bool:
        """Whether the body of an epoch runs, or that of a pass."""
        return self.in_epochs or any(stream.reader is not None for stream in self.streams.values())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over the place in everything."""
        # A save counts bodies that are over: here what was given out and what is done are the same.
        self.epoch, self.step, self.done = state["epoch"], state["step"], state["step"]
        self.finished, self.most_updates = state.get("finished", False), state.get("most_updates", 0)
        self.streams.load_state_dict(state["streams"])
