# SPDX-License-Identifier: Apache-2.0
"""Where a run stands: its epoch, its step, and which of its streams leads.

A pass through a stream is one `for batch in run.batches(source)`. Passes are numbered, and the number is the epoch that
the source's order is drawn from. The stream whose loop began first is the leader: its batches are what `run.step` counts,
and the moment it is asked for its next batch is the only one at which a run is saved. So two streams read together
(`zip`, or one loop inside the other) are saved at the same batch of the leader.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from truestep.core.errors import DataError, OptionError
from truestep.core.text_formatting import a_type, plural
from truestep.engine.data import BatchSource
from truestep.engine.data.open_file_changes import changed_file_sizes_text, file_sizes_by_name
from truestep.run.directory import START_ANEW
from truestep.run.fixed_length_passes import STEPS, RunStepNumbers
from truestep.run.stream_cursor import StreamCursor


class RunStreams(dict[str, StreamCursor]):
    """The streams in the order in which they were made."""

    def stream_of_source(self, source: BatchSource) -> StreamCursor:
        """Return the stream of a source that `run.data` made."""
        for stream in self.values():
            if stream.source is source:
                return stream
        raise DataError(
            f"run.batches was given {a_type(source)} that run.data did not make, so it has no order or place that a "
            "resumed run could find again. Write train = run.data(data_set, batch_size=32) once, before the loop."
        )

    def add(self, source: BatchSource, label: str, *, is_late: bool) -> list[str]:
        """Add the stream of a new source; return how it differs from what the run was saved with, where that is awaited."""
        name = f"data_{self.num_sources + 1}"
        awaited = self.get(name)
        stream = self[name] = StreamCursor(name, source, label, is_late)
        # else it was made late, as between two loops, and a resumed run has kept its place until now
        if awaited is None:
            return []
        saved = awaited.state_dict()
        stream.load_state_dict(saved)
        return _data_changed_messages(label, stream.changes(saved))

    @property
    def num_sources(self) -> int:
        """How many sources `run.data` has made."""
        return sum(name != STEPS for name in self._streams_with_data())

    @property
    def labels(self) -> set[str]:
        """What the user knows the data by that is made."""
        return {each.label for each in self._streams_with_data().values()}

    def _streams_with_data(self) -> dict[str, StreamCursor]:
        """Return the streams whose data is there by now."""
        awaited = SourceAwaitedByRun
        return {name: each for name, each in self.items() if not isinstance(each.source, awaited)}

    def steps(self, total: int) -> StreamCursor:
        """Return the stream of the numbers of steps, which goes on where it was, now to `total`."""
        stream = self._steps_stream()
        source: Any = stream.source
        # the code may ask for more steps now than when the run was saved
        source.total = total
        if stream.number >= 0:
            # saved behind the last body and not behind the loop: what the loop writes at its end is still to do
            stream.go_on(finished=stream.finished and stream.batch >= total)
        return stream

    def _steps_stream(self) -> StreamCursor:
        if STEPS not in self:
            self[STEPS] = StreamCursor(STEPS, RunStepNumbers(), STEPS)
        return self[STEPS]

    def how_it_resumes(self) -> list[str]:
        """Return for each stream that has something to say from where it goes on."""
        found = [(each.label, each.how_it_resumes) for each in self.values()]
        found += [
            (each.label, changed_file_sizes_text(each.files_before, file_sizes_by_name(each.source.files())))
            for each in self.values()
        ]
        return [f"{label!r}: {how}" for label, how in found if how]

    def what_it_costs(self) -> list[str]:
        """Return for each stream what is said once of a cheaper way to read it."""
        found = [(each.label, each.source.what_it_costs()) for each in self.values()]
        return [f"{label!r}: {cost}" for label, cost in found if cost]

    def drawn(self) -> dict[str, float]:
        """Return how many samples were drawn from each source of a mixture in the pass under way, as values to log."""
        mixed = [
            (each.label, drawn)
            for each in self._streams_with_data().values()
            if (drawn := each.source.drawn())
        ]
        return {
            f"drawn/{label}/{name}" if len(mixed) > 1 else f"drawn/{name}": float(number)
            for label, drawn in mixed
            for name, number in drawn.items()
        }

    def changes(self, saved_streams: dict[str, Any]) -> list[str]:
        """Return how the data differs from what was saved; raises a DataError where some is missing."""
        found = []
        for name, saved in saved_streams.items():
            if name == STEPS:
                self._steps_stream()
            label = saved.get("label", name)
            if name in self:
                found += _data_changed_messages(label, self[name].changes(saved))
            # what was made after the start comes again when the code gets there
            elif not saved.get("late"):
                raise DataError(
                    f"The run was saved with the data {label!r}, which is not there now. Call run.data as often and in the same "
                    f"order as when it was saved, before the loop. {START_ANEW}"
                )
        return found

    def load_state_dict(self, saved_streams: dict[str, Any]) -> None:
        """Take over the place in each; of data that is not made yet it waits for it."""
        for name, saved in saved_streams.items():
            if name not in self:
                self[name] = StreamCursor(name, SourceAwaitedByRun(saved), saved["label"], is_late=True)
            self[name].load_state_dict(saved)


def _data_changed_messages(label: str, changes: list[str]) -> list[str]:
    said = f"The data of {label!r} is not what the run was saved with ({'; '.join(changes)})"
    return [said] if changes else []


class SourceAwaitedByRun(BatchSource):
    """Stands for data until `run.data` makes it, and keeps its state for the checkpoints that are saved meanwhile."""

    num_batches, num_samples = None, None

    def __init__(self, saved: dict[str, Any]) -> None:
        self.choices = []
        self._saved = saved

    def batches(self, epoch: int = 0, start: int = 0) -> Iterator[Any]:
        """Nobody holds it, so nobody can read it."""
        raise AssertionError("data that is not made yet was read")

    def fingerprint(self) -> dict[str, Any]:
        """Return what the run was saved with."""
        fingerprint: dict[str, Any] = self._saved["fingerprint"]
        return fingerprint

    @property
    def is_per_rank(self) -> bool:
        """Whether each of several ranks keeps a state of its own."""
        ranks: int = self.fingerprint().get("ranks", 1)
        return ranks > 1

    def state_dict(self) -> dict[str, Any]:
        """Return what the run was saved with."""
        state: dict[str, Any] = self._saved["source"]
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """It is there already."""


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
    num_epochs: int = 0
    """How many the loop over `run.epochs` counts, of the whole run."""
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
    steps_failed: str = ""
    """The exception that left the loop over the steps in the middle of a body, and where."""
    body_left: str = ""
    """The exception that left the body of the newest batch undone, and where; as long as the loop is not gone on with."""
    left: bool = False
    """Whether a loop was left before its last batch, and nothing has followed yet."""
    epochs: object | None = None
    """Stands for the loop over `run.epochs` that runs now."""
    is_over: str = ""
    """The loop over epochs or steps that is over, as it was written; as long as no other begins."""
    updates_behind: int = 0
    """How many updates were made behind such a loop, within no pass."""
    restored_behind: tuple[int, int] = (0, 0)
    """How many of them the checkpoint holds that this process went on from, and its step."""
    has_refused: bool = False
    """Whether an update behind such a loop was refused, which has nothing to do with a pass that gave nothing."""
    half_done: bool = False
    """Whether an interrupt left a body in its middle, and the run goes on being there: in a notebook."""

    def body_done(self) -> None:
        """A body of the leader is over, and counts."""
        # a stream that is still read when the leader's body ends lives on beside it, as in zip
        self.done = self.step
        for stream in self.streams.values():
            stream.crossed = stream.crossed or (stream.beside and stream.reader is not None)

    @property
    def is_body_half_done(self) -> bool:
        """Whether the body of the newest batch had still something to do, and nobody has said that the training is over."""
        return self.half_done or (bool(self.body_left) and not self.finished)

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
        in_epochs = self.is_in_epoch_body
        self.left, self.leader, self.epochs, self.in_epoch_body = False, None, None, False
        self.steps_failed = self.body_left = ""
        for stream in self.streams.values():
            stream.take_up(body=in_epochs)

    def refuse_epochs_begun_again(self, directory: Path) -> None:
        """Raise an OptionError where an exception ended the loop over the epochs behind a batch: its body is half done."""
        has_begun = any(stream.passes for stream in self.streams.values())
        if (
            not self.in_epoch_body
            or self.is_in_epoch_body
            or self.is_broken_off
            or self.finished
            or not has_begun
        ):
            return
        raise OptionError(
            f"The loop over run.epochs was ended within epoch {self.epoch + 1}, after step {self.step}, as by an exception: to "
            "begin it again here would begin that epoch anew, with another order, on weights that it has trained already. Make the "
            "run again, with its learners and data, and loop over that (in a notebook, run the cell with ts.Run(...) once more): a "
            f"new ts.Run of {directory} goes on from its newest checkpoint."
        )

    def refuse_steps_begun_again(self, directory: Path) -> None:
        """Raise an OptionError where an exception left the loop over the steps in the middle of a body."""
        if self.steps_failed and not self.finished:
            raise OptionError(
                f"The loop over run.steps was ended in the body of step {self.step} by {self.steps_failed}: to go on here would "
                "leave out what that body had still to do. Make the run again, with its learners and what it tracks, and loop over "
                f"that (in a notebook, run the cell with ts.Run(...) once more): a new ts.Run of {directory} goes on from its "
                "checkpoint."
            )

    def refuse_updates_after_loop(self) -> None:
        """Raise an OptionError before an update behind a loop that gave nothing, where the checkpoint holds it already."""
        count, step = self.restored_behind
        if count and self.step == step and self.is_after_a_loop:
            self.has_refused = True
            loop = self.is_over or f"run.epochs({self.num_epochs})"
            raise OptionError(
                f"net.update stands behind {loop}, which has nothing left to train, and the checkpoint holds what it "
                f"changed there ({plural(count, 'update')}): each start would make it once more. Write it into the loop; or, to "
                "make it once, if 'last' not in run.state: net.update(loss, batch); run.state['last'] = True"
            )

    @property
    def is_after_a_loop(self) -> bool:
        """Whether a loop over epochs or steps is over, be it by `break`, and no pass reads behind it."""
        over = bool(self.is_over) or self.is_broken_off
        return over and not any(stream.reader is not None for stream in self.streams.values())

    @property
    def is_in_epoch_body(self) -> bool:
        """Whether the body of an epoch runs, which runs again from its top after a resume."""
        return self.epochs is not None

    @property
    def is_after_a_pass(self) -> bool:
        """Whether a body that is resumed here comes, or may come, to a pass that is over and gives it nothing."""
        streams = [stream for stream in self.streams.values() if stream.passes]
        return sum(stream.passes for stream in streams) > 1 or any(
            map(StreamCursor.is_possibly_over, streams)
        )

    @property
    def is_in_first_pass_of_epoch(self) -> bool:
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

    def num_batches_left(self, stream: StreamCursor, limit: int | None) -> int | None:
        """Return how many batches a loop over a stream that begins now gives; None where nobody knows."""
        return 0 if self.finished else stream.num_batches_left(limit)

    def state_dict(self) -> dict[str, Any]:
        """Return the place in everything."""
        streams = {name: stream.state_dict() for name, stream in self.streams.items()}
        return {
            "epoch": self.epoch,
            "step": self.done,
            "streams": streams,
            "finished": self.finished,
            "behind": self.is_after_a_pass,
            "most_updates": self.most_updates,
            **({"updates_behind": self.updates_behind} if self.updates_behind else {}),
        }

    def end_epoch(self) -> None:
        """Go on to the next epoch."""
        # a loop that was left in this epoch is over with it
        self.go_on()
        self.leader, self.done, self.body_left = None, self.step, ""
        self.epoch += 1
        for stream in self.streams.values():
            stream.end_epoch()

    @property
    def is_in_loop(self) -> bool:
        """Whether the body of an epoch runs, or that of a pass."""
        return self.is_in_epoch_body or any(stream.reader is not None for stream in self.streams.values())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over the place in everything."""
        # A save counts bodies that are over: here what was given out and what is done are the same.
        self.epoch, self.step, self.done = state["epoch"], state["step"], state["step"]
        self.finished, self.most_updates = state.get("finished", False), state.get("most_updates", 0)
        self.updates_behind = state.get("updates_behind", 0)
        self.restored_behind = self.updates_behind, self.step
        self.streams.load_state_dict(state["streams"])
