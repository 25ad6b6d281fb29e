# SPDX-License-Identifier: Apache-2.0
"""The data of a run: each source that it reads, by its name in checkpoints, with the place in it."""

from typing import Any

from truestep.core.errors import DataError
from truestep.core.wording import a_type
from truestep.engine.data import BatchSource
from truestep.engine.data.held_files import sizes_by_name, sizes_changed
from truestep.run.awaited import SourceAwaitedByRun
from truestep.run.directory import START_ANEW
from truestep.run.onward import STEPS, RunStepNumbers
from truestep.run.stream_cursor import StreamCursor


class RunStreams(dict[str, StreamCursor]):
    """The streams in the order in which they were made."""

    def stream_of(self, source: BatchSource) -> StreamCursor:
        """Return the stream of a source that `run.data` made."""
        for stream in self.values():
            if stream.source is source:
                return stream
        raise DataError(
            f"run.batches was given {a_type(source)} that run.data did not make, so it has no order or place that a "
            "resumed run could find again. Write train = run.data(data_set, batch_size=...) once, before the loop."
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
        return _told(label, stream.changes(saved))

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
        return {name: each for name, each in self.items() if not isinstance(each.source, awaited)}

    def steps(self, total: int) -> StreamCursor:
        """Return the stream of the numbers of steps, which goes on where it was, now to `total`."""
        stream = self._steps()
        source: Any = stream.source
        # the code may ask for more steps now than when the run was saved
        source.total = total
        if stream.number >= 0:
            # saved behind the last body and not behind the loop: what the loop writes at its end is still to do
            stream.go_on(finished=stream.finished and stream.batch >= total)
        return stream

    def _steps(self) -> StreamCursor:
        if STEPS not in self:
            self[STEPS] = StreamCursor(STEPS, RunStepNumbers(), STEPS)
        return self[STEPS]

    def how_it_resumes(self) -> list[str]:
        """Return for each stream that has something to say from where it goes on."""
        found = [(each.label, each.how_it_resumes) for each in self.values()]
        found += [
            (each.label, sizes_changed(each.files_before, sizes_by_name(each.source.files())))
            for each in self.values()
        ]
        return [f"{label!r}: {how}" for label, how in found if how]

    def what_it_costs(self) -> list[str]:
        """Return for each stream what is said once of a cheaper way to read it."""
        found = [(each.label, each.source.what_it_costs()) for each in self.values()]
        return [f"{label!r}: {cost}" for label, cost in found if cost]

    def drawn(self) -> dict[str, float]:
        """Return how many samples were drawn from each source of a mixture in the pass under way, as values to log."""
        mixed = [(each.label, drawn) for each in self._made().values() if (drawn := each.source.drawn())]
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
                self._steps()
            label = saved.get("label", name)
            if name in self:
                found += _told(label, self[name].changes(saved))
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


def _told(label: str, changes: list[str]) -> list[str]:
    said = f"The data of {label!r} is not what the run was saved with ({'; '.join(changes)})"
    return [said] if changes else []
