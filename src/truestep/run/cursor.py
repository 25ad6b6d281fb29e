# SPDX-License-Identifier: Apache-2.0
"""Where a run stands: its epoch, its step, and the place in each stream of batches.

A pass through a stream is one `for batch in run.batches(source)`. Passes are numbered, and the number is the epoch that
the source's order is drawn from. The stream whose loop began first is the leader: its batches are what `run.step` counts,
and the moment it is asked for its next batch is the only one at which a run is saved. So two streams read together
(`zip`, or one loop inside the other) are saved at the same batch of the leader.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn

from truestep.core.errors import DataError
from truestep.core.wording import a_type
from truestep.engine.data import BatchSource
from truestep.engine.data.held_files import sizes_by_name, sizes_changed
from truestep.engine.data.source import MadeBatch
from truestep.run.awaited import SourceAwaitedByRun
from truestep.run.directory import START_ANEW
from truestep.run.onward import STEPS, OnwardLoopPasses, RunStepNumbers
from truestep.run.pass_batches import LoopReadAhead

_PLACE = ("number", "batch", "given", "passes", "finished", "beside", "crossed")  # kept by their names


@dataclass
class StreamCursor:
    """The place in one source of batches."""

    name: str
    """What it is called in checkpoints."""
    source: BatchSource
    label: str = ""
    """What the user knows it by: the variable, or the line that it was made in."""
    is_late: bool = False
    """Whether it was made after the run had begun, as between two loops: a resumed run begins without it."""
    number: int = -1
    """The pass that is under way, or was last."""
    batch: int = 0
    """How many batches of it were given out."""
    given: int = 0
    """How many batches the pass has had; other than `batch` where `limit` makes it begin or end within an order."""
    passes: int = 0
    """Passes begun in this epoch while no other stream led."""
    finished: bool = False
    """Whether the last of them is over: all batches were read, or the loop was left and the program went on."""
    beside: bool = False
    """Whether the last pass was begun while another stream led."""
    crossed: bool = False
    """Whether the last pass was begun beside a leader and outlasted the body that it was begun in, as in `zip`."""
    in_body: bool = False
    """Whether a batch was given out that is not done."""
    waits: bool = False
    """Whether that was before the first update of a body that another stream leads."""
    limit: int | None = None
    """How many batches the pass under way has at most, where the code says so."""
    is_left: bool = False
    """Whether the loop was left before its end, by `break`, `return` or an exception: what follows decides which pass is next."""
    reader: Iterator[MadeBatch] | None = None
    """What the loop that reads it now is given; one that can look ahead where nobody knows the pass's length."""
    read_digest: str = ""
    """Of what was read of the pass, where its data is a stream."""
    files_before: dict[str, int] = field(default_factory=dict)
    """How large the files were, of which its data is, when the run was saved that goes on."""
    onward: OnwardLoopPasses = field(default_factory=OnwardLoopPasses)
    _over: int = 0
    _resumed: bool = False

    def check_free(self) -> None:
        """Raise a DataError while a loop around this one reads the same source."""
        if self.reader is not None:
            raise DataError(
                f"{self.label!r} is being read already, in a loop around this one, and a source has one place. Make a second "
                "source of the same data with run.data."
            )

    def read(self) -> Iterator[MadeBatch]:
        """Yield the rest of the pass that has begun, each batch with what its source knows of it."""
        if self.limit is not None:
            return self.onward.batches(self, self.limit)
        batches = self.source.made(self.number, self.batch)
        return LoopReadAhead(batches) if self.source.num_batches is None else batches

    @property
    def is_at_last(self) -> bool:
        """Whether the batch that was given out last is the pass's last, as far as its length is known."""
        if self.limit is None:
            return self.batch == self.source.num_batches
        return self.given == self.limit

    @property
    def is_open_ended(self) -> bool:
        """Whether nobody knows which batch of the pass is its last."""
        return isinstance(self.reader, LoopReadAhead)

    def has_more(self) -> bool:
        """Whether the pass has another batch; where its length is not known that one is read now."""
        return self.reader.has_more() if isinstance(self.reader, LoopReadAhead) else not self.is_at_last

    def may_be_over(self) -> bool:
        """Whether the pass is over, or was left where it may have no batch more."""
        is_endless = self.limit is None and self.source.num_batches is None
        return self.finished or (self.is_left and (is_endless or self.is_at_last))

    def num_left(self, limit: int | None) -> int | None:
        """Return how many batches the pass has that would be begun or gone on with now; None where nobody knows."""
        total = self.source.num_batches if limit is None else limit
        if self._over or (self._resumed and self.finished):
            return 0
        done = (self.batch if limit is None else self.given) if self._resumed else 0
        return None if total is None else max(total - done, 0)

    def refuse_reader(self) -> NoReturn:
        """Raise a DataError where a loop that was left goes on after the program went on to something else."""
        raise DataError(
            f"This pass through {self.label!r} is over: the loop was left, and the run went on to the next epoch. Call "
            "run.batches again for another pass."
        )

    def end(self) -> None:
        """The pass is over: all was read, or the program went on without the rest."""
        self.finished = True
        self.stop_reading()

    def stop_reading(self) -> None:
        """No loop reads it now, and none that was left is waited for."""
        self.is_left, self.reader, self.in_body = False, None, False

    def begin(self, *, leads: bool, limit: int | None = None) -> bool:
        """Begin a pass, or go on with the one that was under way at a save; return False where it was over then.

        A pass with a `limit` begins where the one before it ended, any other with an order of its own.

        After a resume the loop's code runs again from the top of its epoch, so passes that were over yield nothing.
        """
        self.limit = limit
        if self._over:
            self._over -= 1
            return False
        if self._resumed:
            self._resumed = False
            return not self.finished
        if limit is None or self.number < 0:
            self.number, self.batch = self.number + 1, 0
        self.given, self.in_body = 0, False
        self.passes += leads
        self.beside, self.crossed = not leads, False
        self.finished = False
        return True

    def go_on(self, *, finished: bool) -> None:
        """The next pass is no new one: it is the last one, which may have become longer."""
        self.in_body, self.finished, self._resumed = False, finished, True

    @property
    def is_behind(self) -> bool:
        """Whether passes are still to come that were under way or over when the run was saved."""
        return bool(self._over) or self._resumed

    def end_epoch(self) -> None:
        """The next pass is the first of an epoch, also where somebody still holds the iterator of a loop that was left."""
        self.end()
        self.passes = self._over = 0
        self._resumed = self.in_body = self.beside = self.crossed = False

    def state_dict(self) -> dict[str, Any]:
        """Return the place, and what a source without places keeps instead."""
        place = {name: getattr(self, name) for name in (*_PLACE, "label")} | {"late": self.is_late}
        place |= {"source": self.source.state_dict(), "fingerprint": self.source.fingerprint()}
        return place | {"files": sizes_by_name(self.source.files()) or self.files_before}

    @property
    def how_it_resumes(self) -> str | None:
        """Return from where its pass goes on after a resume, None where there is nothing to say."""
        if self._resumed and not self.finished:
            return self.source.how_it_resumes(self.number, self.batch)
        return self.source.how_it_resumes(self.number + 1, 0) if self.number >= 0 else None

    def changes(self, state: dict[str, Any]) -> list[str]:
        """Return how the data differs from what the place was saved with."""
        return _changed(state["fingerprint"], self.source.fingerprint())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over the place; where the code gives batches of another size, at the sample that it was at, or just before."""
        for name in _PLACE:
            setattr(self, name, state.get(name, {"given": state["batch"], "crossed": False}.get(name)))
        before, now = (_batch_size(each) for each in (state["fingerprint"], self.source.fingerprint()))
        if before and now and before != now:
            self.batch = self.batch * before // now
        self.take_up()
        self.files_before = state.get("files", {})
        self.source.load_state_dict(state["source"])

    def take_up(self, *, body: bool = True) -> None:
        """The epoch's body runs again from its top: passes that were over yield nothing, the one under way goes on.

        Without `body` one loop runs again, so none of those that were over comes before it.
        """
        self.stop_reading()
        if not body:
            self._over, self._resumed = 0, self.number >= 0 and not self.finished
        elif self.beside:
            # Read beside a leader whose bodies are done: what was over within one of them is not gone through again.
            over_beside = self.finished and self.crossed
            self._over, self._resumed = self.passes + over_beside, not self.finished
        else:
            self._over, self._resumed = max(self.passes - 1, 0), self.passes > 0


def _batch_size(fingerprint: dict[str, Any]) -> int | None:
    size: int | None = fingerprint.get("order", {}).get("batch_size")
    return size


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
            found.append(
                "the content of its samples differs: what is drawn, as by random_split, is drawn with a seed or after ts.Run"
            )
        else:
            found.append(f"{key} was {before}, is {after}")
    return found


def _told(label: str, changes: list[str]) -> list[str]:
    said = f"The data of {label!r} is not what the run was saved with ({'; '.join(changes)})"
    return [said] if changes else []


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
    streams: dict[str, StreamCursor] = field(default_factory=dict)
    leader: StreamCursor | None = None
    finished: bool = False
    """Whether `run.finish()` ended the run, however much there would still be to do."""
    cut: bool = False
    """Whether that left a pass of this epoch undone, or in its middle."""
    in_epoch_body: bool = False
    """Whether the body of an epoch has begun and not come to its end; also behind a loop over the epochs that was left."""
    left: bool = False
    """Whether a loop was left before its last batch, and nothing has followed yet."""
    epochs: object | None = None
    """Stands for the loop over `run.epochs` that runs now."""
    half_done: bool = False
    """Whether an interrupt left a body in its middle, and the run goes on being there: in a notebook."""

    def body_done(self) -> None:
        """A body of the leader is over, and counts."""
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
        if self.leader is not None and (self.leader.finished or self.cut):
            self.leader, self.done = None, self.step

    def cut_short(self, stream: StreamCursor) -> None:
        """`run.finish()` ended a pass before its last batch; a run that is taken up again goes on there."""
        self.cut = True
        stream.stop_reading()

    def take_up(self) -> None:
        """The loop was left to the notebook: what runs it again goes on here, as a resumed run does."""
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

    def stream_of(self, source: BatchSource) -> StreamCursor:
        """Return the stream of a source that `run.data` made."""
        for stream in self.streams.values():
            if stream.source is source:
                return stream
        raise DataError(
            f"run.batches was given {a_type(source)} that run.data did not make, so it has no order or place that a "
            "resumed run could find again. Write train = run.data(data_set, batch_size=...) once, before the loop."
        )

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
        self.go_on()
        self.leader, self.done = None, self.step
        self.epoch += 1
        for stream in self.streams.values():
            stream.end_epoch()

    def steps(self, total: int) -> StreamCursor:
        """Return the stream of the numbers of steps, which goes on where it was, now to `total`."""
        stream = self._steps()
        source: Any = stream.source
        source.total = total
        if stream.number >= 0:
            # saved behind the last body and not behind the loop: what the loop writes at its end is still to do
            stream.go_on(finished=stream.finished and stream.batch >= total)
        return stream

    def _steps(self) -> StreamCursor:
        if STEPS not in self.streams:
            self.streams[STEPS] = StreamCursor(STEPS, RunStepNumbers(), STEPS)
        return self.streams[STEPS]

    def how_it_resumes(self) -> list[str]:
        """Return for each stream that has something to say from where it goes on."""
        found = [(each.label, each.how_it_resumes) for each in self.streams.values()]
        found += [
            (each.label, sizes_changed(each.files_before, sizes_by_name(each.source.files())))
            for each in self.streams.values()
        ]
        return [f"{label!r}: {how}" for label, how in found if how]

    def drawn(self) -> dict[str, float]:
        """Return how many samples were drawn from each source of a mixture in the pass under way, as values to log."""
        mixed = [(each.label, drawn) for each in self._made().values() if (drawn := each.source.drawn())]
        return {
            f"drawn/{label}/{name}" if len(mixed) > 1 else f"drawn/{name}": float(number)
            for label, drawn in mixed
            for name, number in drawn.items()
        }

    def what_it_costs(self) -> list[str]:
        """Return for each stream what is said once of a cheaper way to read it."""
        found = [(each.label, each.source.what_it_costs()) for each in self.streams.values()]
        return [f"{label!r}: {cost}" for label, cost in found if cost]

    @property
    def num_sources(self) -> int:
        """How many sources `run.data` has made."""
        return sum(name != STEPS for name in self._made())

    @property
    def labels(self) -> set[str]:
        """What the user knows the data by that is made."""
        return {each.label for each in self._made().values()}

    def _made(self) -> dict[str, StreamCursor]:
        """Return the streams whose data is there by now."""
        awaited = SourceAwaitedByRun
        return {name: each for name, each in self.streams.items() if not isinstance(each.source, awaited)}

    def add(self, source: BatchSource, label: str, *, is_late: bool) -> list[str]:
        """Add the stream of a new source; return how it differs from what the run was saved with, where that is awaited."""
        name = f"data_{self.num_sources + 1}"
        awaited = self.streams.get(name)
        stream = self.streams[name] = StreamCursor(name, source, label, is_late)
        if awaited is None:
            return []
        saved = awaited.state_dict()
        stream.load_state_dict(saved)
        return _told(label, stream.changes(saved))

    @property
    def is_in_loop(self) -> bool:
        """Whether the body of an epoch runs, or that of a pass."""
        return self.in_epochs or any(stream.reader is not None for stream in self.streams.values())

    def changes(self, state: dict[str, Any]) -> list[str]:
        """Return how the data differs from what was saved; raises a DataError where some is missing."""
        found = []
        for name, saved in state["streams"].items():
            if name == STEPS:
                self._steps()
            label = saved.get("label", name)
            if name in self.streams:
                found += _told(label, self.streams[name].changes(saved))
            elif not saved.get("late"):
                raise DataError(
                    f"The run was saved with the data {label!r}, which is not there now. Call run.data as often and in the same "
                    f"order as when it was saved, before the loop. {START_ANEW}"
                )
        return found

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over the place in everything."""
        # A save counts bodies that are over: here what was given out and what is done are the same.
        self.epoch, self.step, self.done = state["epoch"], state["step"], state["step"]
        self.finished, self.most_updates = state.get("finished", False), state.get("most_updates", 0)
        for name, saved in state["streams"].items():
            if name not in self.streams:
                self.streams[name] = StreamCursor(
                    name, SourceAwaitedByRun(saved), saved["label"], is_late=True
                )
            self.streams[name].load_state_dict(saved)
