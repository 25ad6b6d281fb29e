# SPDX-License-Identifier: Apache-2.0
"""Evaluations of data whose last batch is dropped: a metric over N samples is then one over fewer."""

from collections.abc import Sized
from typing import Any, NamedTuple
from weakref import WeakSet

from truestep.core.text_formatting import plural
from truestep.engine.data.batch_source import BatchSource
from truestep.run.state import RunState


class PartialEvaluationWatcher:
    """Looks at each data once, when an evaluation of them is over; what is trained on may be measured as it is trained on."""

    def __init__(self, run: RunState) -> None:
        self._run = run
        self._looked_at: WeakSet[Any] = WeakSet()

    def evaluated(self, data: Any) -> None:
        """Say how many samples were left out."""
        try:
            if data in self._looked_at:
                return
            self._looked_at.add(data)
        except TypeError:  # a list of batches
            return
        part = (
            self._part_measured_of_source(data)
            if isinstance(data, BatchSource)
            else _part_measured_of_loader(data)
        )
        if part is not None and 0 < part.seen < part.whole:
            self._run.screen.say_once(
                _SAID.format(**part._asdict(), left=plural(part.whole - part.seen, "sample"))
            )

    def _part_measured_of_source(self, source: BatchSource) -> "MeasuredPart | None":
        streams = [each for each in self._run.cursor.streams.values() if each.source is source]
        is_trained_on = any(each.number >= 0 for each in streams)
        if not streams or is_trained_on or not self._run.cursor.step:
            return None
        facts = source.fingerprint()
        whole, is_short = facts.get("num_samples"), (facts.get("order") or {}).get("drop_last")
        if not is_short or not isinstance(whole, int) or source.num_samples is None:
            return None
        return MeasuredPart(source.num_samples, whole, streams[0].label)


class MeasuredPart(NamedTuple):
    """How many samples an evaluation saw, of how many."""

    seen: int
    whole: int
    label: str


def _part_measured_of_loader(loader: Any) -> MeasuredPart | None:
    """Return how much a DataLoader gives that was not given to `run.data`."""
    size, sampler = getattr(loader, "batch_size", None), getattr(loader, "sampler", ())
    if not getattr(loader, "drop_last", False) or not isinstance(size, int) or not isinstance(sampler, Sized):
        return None
    return MeasuredPart(len(sampler) // size * size, len(sampler), "its DataLoader")


_SAID = (
    "net.evaluate saw {seen} samples of {whole}: {label} was made with drop_last=True, so {left} of a shorter batch had no part "
    "in the metric, and where it is shuffled other ones each time. Leave drop_last out for data that are measured: a shorter batch "
    "counts as its examples do"
)
