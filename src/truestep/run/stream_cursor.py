# SPDX-License-Identifier: Apache-2.0
"""The place in one source of batches: which pass is under way, which batch of it, and how its loop was left."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn

from truestep.core.errors import DataError
from truestep.engine.data import BatchSource
from truestep.engine.data.batch_source import BatchWithOrigin
from truestep.engine.data.open_file_changes import file_sizes_by_name
from truestep.run.fixed_length_passes import ContinuousPasses
from truestep.run.pass_batches import PassBatchReader

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
    reader: Iterator[BatchWithOrigin] | None = None
    """What the loop that reads it now is given; one that can look ahead where nobody knows the pass's length."""
    read_digest: str = ""
    """Of what was read of the pass, where its data is a stream."""
    files_before: dict[str, int] = field(default_factory=dict)
    """How large the files were, of which its data is, when the run was saved that goes on."""
    onward: ContinuousPasses = field(default_factory=ContinuousPasses)
    _over: int = 0
    _resumed: bool = False

    def check_source_not_in_use(self) -> None:
        """Raise a DataError while a loop around this one reads the same source."""
        if self.reader is not None:
            raise DataError(
                f"{self.label!r} is being read already, in a loop around this one, and a source has one place. Make a second "
                "source of the same data with run.data."
            )

    def read(self) -> Iterator[BatchWithOrigin]:
        """Yield the rest of the pass that has begun, each batch with what its source knows of it."""
        if self.limit is not None:
            return self.onward.batches(self, self.limit)
        # of an unknown length, one batch is read ahead where somebody asks whether there is another
        batches = self.source.made(self.number, self.batch)
        return PassBatchReader(batches) if self.source.num_batches is None else batches

    @property
    def is_at_last_batch(self) -> bool:
        """Whether the batch that was given out last is the pass's last, as far as its length is known."""
        if self.limit is None:
            return self.batch == self.source.num_batches
        return self.given == self.limit

    @property
    def is_open_ended(self) -> bool:
        """Whether nobody knows which batch of the pass is its last."""
        return isinstance(self.reader, PassBatchReader)

    def has_more(self) -> bool:
        """Whether the pass has another batch; where its length is not known that one is read now."""
        return (
            self.reader.has_more() if isinstance(self.reader, PassBatchReader) else not self.is_at_last_batch
        )

    def is_possibly_over(self) -> bool:
        """Whether the pass is over, or was left where it may have no batch more."""
        is_endless = self.limit is None and self.source.num_batches is None
        return self.finished or (self.is_left and (is_endless or self.is_at_last_batch))

    def num_batches_left(self, limit: int | None) -> int | None:
        """Return how many batches the pass has that would be begun or gone on with now; None where nobody knows."""
        total = self.source.num_batches if limit is None else limit
        # a pass that a resumed body finds over
        if self._over or (self._resumed and self.finished):
            return 0
        done = (self.batch if limit is None else self.given) if self._resumed else 0
        return None if total is None else max(total - done, 0)

    def refuse_outdated_reader(self) -> NoReturn:
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
        # this pass was over at the save, and so were its updates
        if self._over:
            self._over -= 1
            return False
        if self._resumed:
            self._resumed = False
            return not self.finished
        # with a limit a pass takes the next batches of the order that is under way
        if limit is None or self.number < 0:
            self.number, self.batch = self.number + 1, 0
        # only passes that lead are gone through again after a resume; one beside belongs to the leader's bodies
        self.given, self.in_body = 0, False
        self.passes += leads
        self.beside, self.crossed = not leads, False
        self.finished = False
        return True

    def go_on(self, *, finished: bool) -> None:
        """The next pass is no new one: it is the last one, which may have become longer."""
        self.in_body, self.finished, self._resumed = False, finished, True

    @property
    def has_saved_passes_to_skip(self) -> bool:
        """Whether passes are still to come that were under way or over when the run was saved."""
        return bool(self._over) or self._resumed

    def end_epoch(self) -> None:
        """The next pass is the first of an epoch, also where somebody still holds the iterator of a loop that was left."""
        self.end()
        # the next epoch's body finds no pass of this one
        self.passes = self._over = 0
        self._resumed = self.in_body = self.beside = self.crossed = False

    def state_dict(self) -> dict[str, Any]:
        """Return the place, and what a source without places keeps instead."""
        place = {name: getattr(self, name) for name in (*_PLACE, "label")} | {"late": self.is_late}
        place |= {"source": self.source.state_dict(), "fingerprint": self.source.fingerprint()}
        return place | {"files": file_sizes_by_name(self.source.files()) or self.files_before}

    @property
    def how_it_resumes(self) -> str | None:
        """Return from where its pass goes on after a resume, None where there is nothing to say."""
        if self._resumed and not self.finished:
            return self.source.how_it_resumes(self.number, self.batch)
        return self.source.how_it_resumes(self.number + 1, 0) if self.number >= 0 else None

    def changes(self, state: dict[str, Any]) -> list[str]:
        """Return how the data differs from what the place was saved with."""
        return _fingerprint_differences(state["fingerprint"], self.source.fingerprint())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over the place; where the code gives batches of another size, at the sample that it was at, or just before."""
        for name in _PLACE:
            setattr(self, name, state.get(name, {"given": state["batch"], "crossed": False}.get(name)))
        # a place counts batches, and the order counts samples: of another size the same sample has another number
        before, now = (
            _batch_size_of_fingerprint(each) for each in (state["fingerprint"], self.source.fingerprint())
        )
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


def _batch_size_of_fingerprint(fingerprint: dict[str, Any]) -> int | None:
    size: int | None = fingerprint.get("order", {}).get("batch_size")
    return size


def _fingerprint_differences(saved: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Return what differs of two fingerprints, with the values of both."""
    found = []
    for key in sorted(saved.keys() | now.keys()):
        before, after = saved.get(key), now.get(key)
        if before == after:
            continue
        if isinstance(before, dict) and isinstance(after, dict):
            found += _fingerprint_differences(before, after)
        elif key == "content":
            found.append(
                "the content of its samples differs: what is drawn, as by random_split, is drawn with a seed or after ts.Run"
            )
        else:
            found.append(f"{key} was {before}, is {after}")
    return found
