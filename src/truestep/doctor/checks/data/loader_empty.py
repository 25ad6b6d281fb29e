# SPDX-License-Identifier: Apache-2.0
"""A loader that yields nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from truestep.core.text_formatting import plural
from truestep.doctor.finding import Place
from truestep.doctor.watcher_base import Observation, Observations, Watcher

if TYPE_CHECKING:
    from truestep.doctor.runtime.history import WatchHistory


class LoaderEmpty(Watcher):
    """A loader yields no batch at all.

    Why: drop_last=True with fewer examples than one batch: the loop body never runs, and nothing says so.

    Bad:
        large = DataLoader(data, batch_size=64, drop_last=True)
        for x, y in large:  # here
            train(x, y)

    Good:
        large = DataLoader(data, batch_size=64)
        for x, y in large:
            train(x, y)

    Fix: a smaller batch, or drop_last=False.

    Evidence: the plain form of row 82 of docs/mistakes.md.
    """

    code = "DATA023"

    def on_epoch(self, history: WatchHistory, source: Any, place: Place) -> Observations:
        """Report a loader of known length 0."""
        from torch.utils.data import DataLoader

        if isinstance(source, DataLoader):
            try:
                batches, examples = len(source), len(source.dataset)  # type: ignore[arg-type]
            except TypeError:
                return  # a stream has no length
            if batches == 0:
                text = (
                    f"The loader has no batch: {plural(examples, 'example')}, batches of {source.batch_size}."
                )
                evidence = {
                    "examples": examples,
                    "batch_size": source.batch_size,
                    "drop_last": source.drop_last,
                }
                yield Observation(place, text, evidence=evidence)
