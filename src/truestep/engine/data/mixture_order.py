# SPDX-License-Identifier: Apache-2.0
"""A mixture of data sets whose samples can be asked for by number: an order over all of them, which can be entered anywhere."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from torch.utils.data import Dataset

from truestep.engine.automatic_choice import Choice
from truestep.engine.data.batch_source import BatchSource, BatchWithOrigin
from truestep.engine.data.mapped import MappedSource
from truestep.engine.data.mixture import (
    Counts,
    MixtureDraws,
    describe_draws,
    endless_mixture_reason,
    refuse_endless_evaluation,
)
from truestep.engine.data.order import POSITIONS_AT_ONCE, BatchBlock, BatchOrder
from truestep.engine.data.permutation import Indices
from truestep.engine.data.sample_draws import SampleIndices


class JoinedData(Dataset[Any]):
    """The samples of several data sets, those of one behind those of the other."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self.parts = [*parts]
        self.ends = [*accumulate(map(len, self.parts))]

    def __len__(self) -> int:
        return self.ends[-1]

    def __getitem__(self, number: int) -> Any:
        part = bisect_right(self.ends, number)
        return self.parts[part][number - (self.ends[part - 1] if part else 0)]


class MixtureOrder(BatchOrder):
    """Batches whose samples are drawn from several data sets, each of which comes in an order of its own."""

    num_batches = num_samples = None

    def __init__(
        self, draws: MixtureDraws, orders: Sequence[SampleIndices], sizes: Sequence[int], *, drop_last: bool
    ) -> None:
        self._draws, self._orders, self._drop_last = draws, orders, drop_last
        self._begins_again = draws.mixture.at_end == "again"
        self.sizes = sizes
        # of a schedule: what was drawn up to a batch, until that is given out
        self._read: dict[tuple[int, int], str] = {}
        self._firsts = [end - size for end, size in zip(accumulate(sizes), sizes, strict=True)]

    def blocks(self, epoch: int, start: int) -> Iterator[BatchBlock]:
        """Yield the batches of `epoch` from number `start` on, several at a time."""
        size = self._draws.batch_size
        at_once = 1 if self._draws.is_scheduled else max(1, POSITIONS_AT_ONCE // size)
        counts, batch, read = self._draws.counts(epoch, start), start, ""
        is_over = not self._begins_again and bool((counts > np.array(self.sizes)).any())
        while not is_over:
            parts = self._draws.parts(epoch, batch, at_once)
            if read := self._draws.schedule_draws_digest(parts, read):
                self._read[epoch, batch] = read
            indices, counts = self._draw_samples(epoch, parts, counts)
            full, rest = divmod(len(indices), size)
            rest = 0 if self._drop_last else rest
            if full or rest:
                sizes = [size] * full + [rest] * (rest > 0)
                yield BatchBlock(batch * size, indices[: full * size + rest], sizes)
            if full < at_once:
                return
            batch += at_once

    def take_draws_digest(self, epoch: int, batch: int) -> str:
        """Return, once, what tells from which sources a schedule drew up to a batch; nothing where numbers say it."""
        return self._read.pop((epoch, batch), "")

    def counts(self, epoch: int, batches: int) -> Counts:
        """Return how many samples the first batches of an epoch have of each source."""
        if not batches:
            return self._draws.counts(epoch, 0)
        last = self._draws.parts(epoch, batches - 1)  # it may be short
        return self._draw_samples(epoch, last, self._draws.counts(epoch, batches - 1))[1]

    def _draw_samples(self, epoch: int, parts: Indices, counts: Counts) -> tuple[Indices, Counts]:
        """Return the samples that are drawn, fewer where a source has none left, and how many there are of each by then."""
        places = np.empty_like(parts)
        for part, before in enumerate(counts):
            here = parts == part
            places[here] = before + np.arange(int(here.sum()))
        if not self._begins_again:
            over = np.flatnonzero(places >= np.array(self.sizes)[parts])
            end = int(over[0]) if over.size else len(parts)
            parts, places = parts[:end], places[:end]
        found = np.empty_like(parts)
        for part, order in enumerate(self._orders):
            here = np.flatnonzero(parts == part)
            passes, within = np.divmod(places[here], self.sizes[part])  # both rise, so a pass is a stretch
            numbers, begins, lengths = np.unique(passes, return_index=True, return_counts=True)
            for number, begin, end in zip(numbers.tolist(), begins, begins + lengths, strict=True):
                found[here[begin:end]] = self._firsts[part] + order.indices(epoch + number, within[begin:end])
        return found, counts + np.bincount(parts, minlength=len(counts))


class MapStyleMixture(BatchSource):
    """A mixture that can be entered anywhere: what was drawn so far is kept, so that weights that change need no replay."""

    num_batches = num_samples = None

    def __init__(self, draws: MixtureDraws, order: MixtureOrder, mixed: MappedSource) -> None:
        self._draws, self._order, self._mixed = draws, order, mixed
        self._place = (0, 0)
        why = "each sample's source is a function of the seed and its position"
        self.choices = [Choice("mixture", ", ".join(draws.names), why), *mixed.choices]

    def batches(self, epoch: int = 0, start: int = 0) -> Iterator[Any]:
        """Yield the batches of `epoch` from number `start` on."""
        return (made.batch for made in self.made(epoch, start))

    def made(self, epoch: int, start: int = 0) -> Iterator[BatchWithOrigin]:
        """Yield the same batches, each with the number of samples that it was made of."""
        for number, made in enumerate(self._mixed.made(epoch, start), start + 1):
            self._place = (epoch, number)
            yield made._replace(read=self._order.take_draws_digest(epoch, number - 1))

    @property
    def why_endless(self) -> str:
        """Why a pass of it has no end."""
        return endless_mixture_reason(self._draws.mixture)

    def made_for_evaluation(self) -> Iterator[BatchWithOrigin]:
        """Yield what an evaluation reads."""
        refuse_endless_evaluation(self._draws.mixture)
        return self._mixed.made(0)

    def fingerprint(self) -> dict[str, Any]:
        """Return that of all samples together, and how they are mixed."""
        sizes = dict(zip(self._draws.names, self._order.sizes, strict=True))
        return {**self._mixed.fingerprint(), "kind": "mixture", "sources": sizes, **self._draws.describe()}

    def facts(self) -> dict[str, Any]:
        """Return what the ranks compare."""
        return {**self._mixed.facts(), **self.fingerprint()}

    def drawn(self) -> dict[str, int]:
        """Return how many samples were drawn from each source in this pass."""
        return dict(zip(self._draws.names, self._order.counts(*self._place).tolist(), strict=True))

    def state_dict(self) -> dict[str, Any]:
        """Return where the pass stands, and what was drawn."""
        return self._draws.state_dict(*self._place)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        if state:
            self._draws.load_state_dict(state)
            self._place = (state["epoch"], state["batches"])

    def how_it_resumes(self, epoch: int, start: int) -> str | None:
        """Return what was drawn so far."""
        return f"goes on behind {describe_draws(self.drawn())}" if start else None

    def close(self) -> None:
        """End the worker processes."""
        self._mixed.close()
