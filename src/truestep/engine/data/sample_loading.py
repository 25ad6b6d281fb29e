# SPDX-License-Identifier: Apache-2.0
"""Loading the samples of one batch, here or in a worker: each with its own random state."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import count
from operator import getitem
from typing import Any

import torch
from torch.utils.data import StackDataset, Subset, get_worker_info

from truestep.core.errors import BatchError, DataError
from truestep.core.text_formatting import a_type
from truestep.engine.batches import BatchOrigin, batch_rows
from truestep.engine.data.batch_collation import stack_samples
from truestep.engine.data.columns import DataColumns
from truestep.engine.data.order import BatchRequest
from truestep.engine.data.randomness import LoadingPhase, SampleRandomness
from truestep.engine.data.worker_progress import note_sample

Collate = Callable[[list[Any]], Any]


class SeededSamples(torch.utils.data.Dataset[Any]):
    """A map-style data set asked for whole batches: `samples[request]` is what the training loop gets."""

    def __init__(
        self, dataset: Any, seed: int, collate: Collate | None, stack: Collate = stack_samples
    ) -> None:
        """`stack` makes the batches where `collate` is None."""
        self.dataset = dataset
        self._seed = seed
        self._collate, self._stack = collate, stack
        self._loads_batches = _can_load_batches(dataset)
        self.draws = type(dataset) not in (list, DataColumns)  # others run code of the user's
        self._all_set = False
        self._randomness: SampleRandomness | None = None

    def __getitem__(self, request: BatchRequest) -> Any:
        batch = self._load_batch(request)
        return self._make_empty_batch(batch) if request.is_empty else batch

    def _make_empty_batch(self, batch: Any) -> Any:
        try:
            return batch_rows(batch, 0, 0, BatchOrigin(1, self._collate is None))
        except BatchError as error:
            raise BatchError(
                "This rank has no example of the batch, and is given an empty one in its place, which can't be made of "
                f"{a_type(batch)}. Leave no rank without: batch_size of at least as many examples as ranks, and drop_last=True; "
                "or let collate return a tuple or dict of tensors, each with a row for an example."
            ) from error

    def _load_batch(self, request: BatchRequest) -> Any:
        phases = []
        if self.draws:
            phases.append(
                LoadingPhase(
                    self.randomness.drawing("sample"),
                    lambda _: self._stack_unless_collated(self.load(request)),
                )
            )
        if self._collate is not None:
            phases.append(
                LoadingPhase(self.randomness.drawing("collate"), partial(self._collate_samples, request))
            )
        if not phases:
            return self._stack_unless_collated(self.load(request))
        # In a worker nobody else draws from them.
        return self.randomness.load(phases, put_back=get_worker_info() is None)

    def _stack_unless_collated(self, samples: list[Any]) -> Any:
        return samples if self._collate is not None else self._stack(samples)

    def _collate_samples(self, request: BatchRequest, samples: list[Any] | None) -> Any:
        assert self._collate is not None
        samples = self.load(request) if samples is None else samples
        call = self.randomness.drawing("collate").call
        (batch,) = call(request.epoch, request.position, [samples], self._collate, [])
        return batch

    @property
    def randomness(self) -> SampleRandomness:
        """The generators to set; found in each process, since each has copies of its own."""
        if self._randomness is None:
            self._randomness = SampleRandomness(self._seed, self.dataset, all_set=self._all_set)
        return self._randomness

    def set_all_generators(self) -> None:
        """Set all generators before every sample from now on, whether it draws from them or not."""
        self._all_set, self._randomness = True, None

    def preserve_generators(self) -> AbstractContextManager[None]:
        """Return a block after which every generator is as before; a worker's are its own anyway."""
        return nullcontext() if get_worker_info() else self.randomness.borrowed()

    def generators(self) -> list[str]:
        """Return the names of the generators that the data set keeps for itself."""
        return list(self.randomness.found)

    def load(self, request: BatchRequest) -> list[Any]:
        """Return the samples of `request`, before they are collated."""
        indices = request.indices.tolist()
        if not self.draws:
            return [self.dataset[index] for index in indices]
        if self._loads_batches:
            return self._load_samples_at_once(request, indices)
        samples: list[Any] = []
        try:
            load = self._make_noting_loader(request) or partial(getitem, self.dataset)
            self.randomness.drawing("sample").call(request.epoch, request.position, indices, load, samples)
        except Exception as error:
            place = f"at position {request.position + len(samples)} of epoch {request.epoch}"
            error.add_note(f"This happened while sample {indices[len(samples)]} ({place}) was being loaded.")
            raise
        return samples

    def _make_noting_loader(self, request: BatchRequest) -> Callable[[int], Any] | None:
        """Return what loads the next sample and says so where a death would leave no other trace: in a worker."""
        if get_worker_info() is None:
            return None
        positions = count(request.position)

        def load_and_note(index: int) -> Any:
            note_sample(next(positions), index)
            return self.dataset[index]

        return load_and_note

    def _load_samples_at_once(self, request: BatchRequest, indices: list[int]) -> list[Any]:
        note_sample(request.position, indices[0])
        drawing, load = self.randomness.drawing("sample"), self.dataset.__getitems__
        try:
            (samples,) = drawing.call(request.epoch, request.position, [indices], load, [])
        except Exception as error:
            place = f"at position {request.position} of epoch {request.epoch}"
            error.add_note(f"This happened while samples {indices} ({place}) were loaded by __getitems__.")
            raise
        if len(samples) != len(indices):
            raise DataError(
                f"__getitems__ of {type(self.dataset).__name__} was asked for {len(indices)} samples and "
                f"returned {len(samples)}: the batch is not the one the order says. Return one per index."
            )
        return list(samples)

    def __getstate__(self) -> dict[str, Any]:
        # Streams hold addresses and bound methods of this process's generators: a worker finds its own.
        return {**self.__dict__, "_randomness": None}


def _can_load_batches(dataset: Any) -> bool:
    """Return whether the data set itself can load several samples at once.

    torch's wrappers only pass such a call on, and one that was inherited knows nothing of a `__getitem__`
    that a class below it overrides.
    """
    if type(dataset) is Subset:
        return _can_load_batches(dataset.dataset)
    if type(dataset) is StackDataset:
        inner = dataset.datasets
        return any(map(_can_load_batches, inner.values() if isinstance(inner, dict) else inner))
    for owner in type(dataset).__mro__:
        if "__getitems__" in vars(owner):
            return callable(dataset.__getitems__)
        if "__getitem__" in vars(owner):
            return False
    return False
