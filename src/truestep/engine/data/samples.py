# SPDX-License-Identifier: Apache-2.0
"""Loading the samples of one batch, here or in a worker: each with its own random state."""

import dataclasses
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.utils.data import Subset, default_collate, get_worker_info

from truestep.engine.data.columns import Columns
from truestep.engine.data.order import Request
from truestep.engine.data.progress import note
from truestep.engine.data.randomness import SampleRandomness
from truestep.errors import DataError

Collate = Callable[[list[Any]], Any]


class Samples(torch.utils.data.Dataset[Any]):
    """A map-style data set asked for whole batches: `samples[request]` is what the training loop gets."""

    def __init__(self, dataset: Any, seed: int, collate: Collate | None) -> None:
        self.dataset = dataset
        self._seed = seed
        self._collate = collate or stack
        self._loads_batches = _loads_batches(dataset)
        self.draws = type(dataset) not in (list, Columns)  # others run code of the user's
        self._randomness: SampleRandomness | None = None

    def __getitem__(self, request: Request) -> Any:
        with self.private_randomness():
            samples = self.load(request)
            self.randomness.set(self.randomness.keys("collate", request.epoch, request.position)[0])
            return self._collate(samples)

    @property
    def randomness(self) -> SampleRandomness:
        """The generators to set; found in each process, since each has copies of its own."""
        if self._randomness is None:
            self._randomness = SampleRandomness(self._seed, self.dataset)
        return self._randomness

    def private_randomness(self) -> AbstractContextManager[None]:
        """Return a block after which every generator is as before; a worker's are its own anyway."""
        return nullcontext() if get_worker_info() else self.randomness.borrowed()

    def generators(self) -> list[str]:
        """Return the names of the generators that the data set keeps for itself."""
        return list(self.randomness.found)

    def load(self, request: Request) -> list[Any]:
        """Return the samples of `request`, before they are collated."""
        indices = request.indices.tolist()
        if not self.draws:
            return [self.dataset[index] for index in indices]
        if self._loads_batches:
            return self._load_together(request, indices)
        keys = self.randomness.keys("sample", request.epoch, request.position, len(indices))
        set_generators = self.randomness.set
        samples = []
        offset = 0
        try:
            for offset, index in enumerate(indices):
                note(request.position + offset, index)
                set_generators(keys[offset])
                samples.append(self.dataset[index])
        except Exception as error:
            place = f"at position {request.position + offset} of epoch {request.epoch}"
            error.add_note(f"This happened while sample {indices[offset]} ({place}) was being loaded.")
            raise
        return samples

    def _load_together(self, request: Request, indices: list[int]) -> list[Any]:
        note(request.position, indices[0])
        self.randomness.set(self.randomness.keys("sample", request.epoch, request.position)[0])
        try:
            samples = self.dataset.__getitems__(indices)
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
        return {**self.__dict__, "_randomness": None}


def _loads_batches(dataset: Any) -> bool:
    """Return whether `__getitems__` is the data set's own: a Subset has one that only loops."""
    while type(dataset) is Subset:
        dataset = dataset.dataset
    return callable(getattr(dataset, "__getitems__", None))


def stack(samples: list[Any]) -> Any:
    """Return one batch of `samples`: their tensors stacked, structure by structure, data classes too."""
    first = samples[0]
    if dataclasses.is_dataclass(first) and not isinstance(first, type):
        names = [field.name for field in dataclasses.fields(first)]
        return dataclasses.replace(
            first, **{name: stack([getattr(s, name) for s in samples]) for name in names}
        )
    try:
        return default_collate(samples)
    except (RuntimeError, TypeError) as error:
        error.add_note(
            "These samples can't be stacked into one batch: every sample must have the same structure and "
            "its tensors the same shapes and types. For ragged samples give collate=, a function of a list "
            "of samples: collate=list keeps them as they are."
        )
        raise
