# SPDX-License-Identifier: Apache-2.0
"""Passes over torch's DataLoaders that can be gone through again: what is drawn while data is fetched depends on the pass alone.

A framework's checkpoint lacks where the random streams stood when a pass began, and those of the loader's workers. So a pass gets a
key: batches are fetched with the global streams set from it, and generators that the data keeps for itself, and all are put back.
A resumed run fetches the first batches once more, whereby samplers, data sets and workers come to where they were, and drops them.
New workers are made for each pass. The batch at the place is compared with a digest: data that are made otherwise, by a draw
without a seed, say, are refused.
"""

import hashlib
import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from truestep.core.errors import BatchError, OptionError
from truestep.core.random_streams import random_key
from truestep.core.structure import batch_leaves
from truestep.engine.data.generators import SampleGenerator, global_sample_generators
from truestep.engine.data.probe import digest_samples
from truestep.engine.data.search import find_sample_generators

_OTHERS = 0x07E5  # keeps the keys of evaluations apart from those of passes

_NUM_GLOBAL = 3  # python's, NumPy's and torch's
_NUM_KEPT = 4  # digests of the batches fetched last; a framework is a batch ahead
_NUM_ROWS = 2  # of a batch, for its digest
_PARTS = ("dataset", "batch_sampler", "sampler", "generator", "collate_fn", "worker_init_fn")

_plain_iter: Callable[[Any], Iterator[Any]] | None = None
_active: "weakref.ref[KeyedPasses] | None" = None


class KeyedPasses:
    """Has every DataLoader of this process iterated in keyed passes, from `begin` to `end`."""

    def __init__(
        self,
        training: Callable[[Any], int | None] | None = None,
        skipped: Callable[[Any, int], int] = lambda _, batches: batches,
    ) -> None:
        self._training = training
        """Returns the number of the pass where a loader is the one that is trained on, now; else None."""
        self.begins: int | None = None
        """The number of the pass that the next loader begins, where that is known to be the one that is trained on."""
        self.begins_on: Any = None
        """The data that every such loader has, until `begins` is set back; None where the next loader is the only one."""
        self.begun: int | None = None
        """The number of the pass over the training loader that was begun last."""
        self._skipped = skipped
        """Returns how many of so many batches are to be dropped here, and not by the framework."""
        self.root = 0
        self._process = os.getpid()
        self._place: dict[str, Any] | None = None
        self._digests: dict[int, str] = {}
        self._is_new = False

    def begin(self, place: dict[str, Any] | None) -> None:
        """Begin, at the place of a checkpoint if there is one."""
        global _plain_iter, _active
        self.root = torch.initial_seed() if place is None else place["root"]
        self._place, self._is_new, self.begun = place, place is None, None
        _active = weakref.ref(self)
        if DataLoader.__iter__ is not _keyed_iter:
            _plain_iter, DataLoader.__iter__ = DataLoader.__iter__, _keyed_iter  # type: ignore[method-assign,assignment]

    def end(self) -> None:
        """Have loaders iterate as torch has them."""
        global _active
        if _active is not None and _active() is self:
            _active = None
            # where somebody else has wrapped it since, ours stays beneath and hands on
            if DataLoader.__iter__ is _keyed_iter and _plain_iter is not None:
                DataLoader.__iter__ = _plain_iter  # type: ignore[method-assign,assignment]

    def place(self, number: int, batches: int) -> dict[str, Any]:
        """Return what brings a pass to where it is when so many of its batches have been trained on."""
        fetched = max((each for each in self._digests if each <= batches), default=None)
        digest = None if fetched is None else [fetched, self._digests[fetched]]
        return {"root": self.root, "pass": number, "batches": batches, "digest": digest}

    @property
    def is_of_this_process(self) -> bool:
        """Whether this is no forked worker, which has loaders of its own."""
        return os.getpid() == self._process

    def iterate(self, loader: Any, plain: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        """Return a keyed pass over a loader."""
        streams = _streams_of(loader)
        begins = self.begins
        if self.begins_on is None:
            self.begins = None
        elif getattr(loader, "dataset", None) is not self.begins_on:
            begins = None
        number = begins if begins is not None or self._training is None else self._training(loader)
        if number is None:
            return _KeyedPass(loader, plain, streams, random_key(self.root, _OTHERS, _place_of(streams)))
        refuse_loader(loader)
        if self._is_new:  # which seed the user gave to a loader's own generator counts, too
            self.root, self._is_new = random_key(self.root, _place_of(streams[_NUM_GLOBAL:])), False
        self.begun = number
        # else the framework may ask early, or for something else
        place = self._place if begins is not None else None
        found = _KeyedPass(loader, plain, streams, random_key(self.root, number))
        self._digests = found.digests = {}
        if place is not None and place["pass"] == number:
            found.skip = self._skipped(loader, place["batches"])
            found.expected = _digest_to_meet(place, loader)
        return found


class _KeyedPass:
    """The iterator of a pass; it is made with the first batch, when the framework has told samplers the epoch."""

    def __init__(
        self,
        loader: Any,
        plain: Callable[[], Iterator[Any]],
        streams: Sequence[SampleGenerator],
        key: int,
    ) -> None:
        self._loader, self._plain, self._streams, self._key = loader, plain, streams, key
        self.skip = self._fetched = 0
        self.digests: dict[int, str] | None = None
        """By its number the digest of a batch, for the last few; None where nobody asks."""
        self.expected: list[Any] | None = None
        """The number of a batch, and what its digest was before the kill."""
        self._iterator: Iterator[Any] | None = None

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._iterator is None:
            self._loader._iterator = None  # persistent workers stand where the last pass left them
            self._iterator = _with_streams(self._streams, self._key, self._plain)
            for _ in range(self.skip):
                self._fetch()
        return self._fetch()

    def _fetch(self) -> Any:
        assert self._iterator is not None
        self._fetched += 1
        batch = _with_streams(self._streams, random_key(self._key, self._fetched), self._iterator.__next__)
        if self.digests is not None:
            number = self._fetched - 1
            self.digests[number] = _digest_of(batch)
            self.digests.pop(number - _NUM_KEPT, None)
            if self.expected is not None and self.expected[0] == number:
                _refuse_other_batch(number, self.expected[1], self.digests[number])
        return batch


def _keyed_iter(loader: Any) -> Iterator[Any]:
    assert _plain_iter is not None
    active = _active() if _active is not None else None
    if active is None or not active.is_of_this_process:
        return _plain_iter(loader)
    plain = _plain_iter
    return active.iterate(loader, lambda: plain(loader))


def _streams_of(loader: Any) -> list[SampleGenerator]:
    """Return the global streams, and the generators that a loader, its samplers and its data keep for themselves."""
    own = find_sample_generators({name: getattr(loader, name, None) for name in _PARTS})
    return [*global_sample_generators(), *own.values()]


def _with_streams(streams: Sequence[SampleGenerator], key: int, call: Callable[[], Any]) -> Any:
    """Return what a call returns with the streams set from a key, and put them back."""
    before = [stream.state() for stream in streams]
    for number, stream in enumerate(streams):
        stream.seed(key if number < _NUM_GLOBAL else random_key(key, number))
    try:
        return call()
    finally:
        for stream, state in zip(streams, before, strict=True):
            stream.restore(state)


def _digest_of(batch: Any) -> str:
    """Return a digest of the first rows of a batch, on the CPU."""
    try:
        return digest_samples([_first_rows(leaf) for _, leaf in batch_leaves(batch)])
    except BatchError:  # a mapping that can't be walked
        return ""


def _first_rows(leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor):
        # bytes of objects are addresses
        return None if getattr(leaf, "dtype", None) == np.dtype(object) else leaf
    is_plain = leaf.layout == torch.strided and leaf.device == torch.device("cpu") and not leaf.is_nested
    return (leaf[:_NUM_ROWS] if leaf.dim() else leaf).contiguous() if is_plain else None


def _digest_to_meet(place: dict[str, Any], loader: Any) -> list[Any] | None:
    """Return what was kept of the batch at a place, unless other workers draw other numbers."""
    workers = place.get("habits", {}).get("workers")
    return place.get("digest") if workers == getattr(loader, "num_workers", None) else None


def _refuse_other_batch(number: int, before: str, now: str) -> None:
    if before != now:
        raise OptionError(
            f"ExactResume can't go on exactly: batch {number} of this epoch, counted from 0, holds other numbers than before the "
            "kill, so the data are not the same, or draw from something that no seed sets. Have them made the same at each start "
            "(a seed for each split, generator and file), or give ExactResume an empty directory."
        )


def _place_of(streams: Sequence[SampleGenerator]) -> int:
    """Return a number of where streams stand: an evaluation draws other numbers each time, and none of the training's."""
    states = [each.state() for each in streams]
    content = repr([each.tolist() if isinstance(each, torch.Tensor) else each for each in states])
    return int.from_bytes(hashlib.blake2b(content.encode(), digest_size=8).digest())


def refuse_loader(loader: Any, *more: Any) -> None:
    """Raise an OptionError for several loaders, and one whose passes can't be gone through again."""
    if more:
        raise OptionError(
            f"ExactResume keeps the place in one training loader, and this training has {1 + len(more)}. Give one DataLoader, over "
            "a data set that returns what they return."
        )
    kind = type(loader)
    if not isinstance(loader, DataLoader) or kind.__iter__ not in (_keyed_iter, DataLoader.__iter__):
        raise OptionError(
            f"ExactResume goes through the batches of a torch.utils.data.DataLoader again, and the training data is a "
            f"{kind.__module__}.{kind.__qualname__}, which iterates in a way of its own: where it stands can't be kept. "
            "Give it as DataLoader(data_set, batch_size=...)."
        )
    if not getattr(loader, "in_order", True):
        raise OptionError(
            "DataLoader(in_order=False) gives batches as workers finish them, another order in each run: nothing could be "
            "resumed to the same bits. Leave in_order out."
        )


def refuse_processes(number: int, library: str) -> None:
    """Raise an OptionError for several processes."""
    if number > 1:
        raise OptionError(
            f"ExactResume keeps the streams and workers of one process, and {library} trains on {number}: the others would go on "
            "with other random numbers. Train on one device, or write the loop with ts.Run, which resumes on several."
        )
