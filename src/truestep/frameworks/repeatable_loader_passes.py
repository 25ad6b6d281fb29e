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
from torch.utils.data import DataLoader, IterableDataset

from truestep.core.errors import BatchError, OptionError
from truestep.core.nested_structures import batch_leaves_by_name
from truestep.core.random_streams import random_key
from truestep.engine.data.generator_search import find_sample_generators
from truestep.engine.data.generators import SampleGenerator, global_sample_generators
from truestep.engine.data.sample_probe import digest_samples

_OTHERS = 0x07E5  # keeps the keys of evaluations apart from those of passes
_NUM_GLOBAL = 3  # python's, NumPy's and torch's
_NUM_KEPT = 4  # batches fetched last of which rows are kept; a framework is a batch ahead
_NUM_ROWS = 2  # of a batch, for its digest
_PARTS = ("dataset", "batch_sampler", "sampler", "generator", "collate_fn", "worker_init_fn")

_plain_iter: Callable[[Any], Iterator[Any]] | None = None
_active: "weakref.ref[KeyedPasses] | None" = None


class KeyedPasses:
    """Has every DataLoader of this process iterated in keyed passes, from `begin` to `end`.

    `skipped`: how many of so many batches a loader drops here, where the framework drops the others itself; None where it does not
    go on at the place.
    """

    def __init__(self, skipped: Callable[[Any, int], int | None] = lambda _, batches: batches) -> None:
        self._skipped = skipped
        self._process = os.getpid()  # a forked worker has loaders of its own
        self._root, self._is_new, self._seeds = 0, False, ""
        self._place: dict[str, Any] = {}
        self._awaited: tuple[int, Callable[[], Any]] | None = None
        self._training: _KeyedPass | None = None
        self.is_over = False
        """Whether the pass that is trained on ends where it stands: a Trainer that is done makes one more step otherwise."""

    def begin(self, place: dict[str, Any], seeds: str = "") -> None:
        """Begin, at the place of a checkpoint if it is not empty; `seeds` is said where its batch is another."""
        global _plain_iter, _active
        self._place, self._is_new, self._training, self._seeds = place, not place, None, seeds
        self._root = place.get("root", torch.initial_seed())
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

    def await_pass(self, number: int, loader: Callable[[], Any]) -> None:
        """Take each pass over the batches of what `loader` returns for the one of this number that is trained on, until told."""
        self._awaited = number, loader

    def stop_waiting(self) -> None:
        """Take the last of them for it."""
        self._awaited = None

    def has_begun(self, number: int) -> bool:
        """Whether the pass of this number that is trained on was begun last."""
        return self._training is not None and self._training.number == number

    def place(self, batches: int) -> dict[str, Any]:
        """Return what brings the pass that is trained on to where it is when so many of its batches are done."""
        assert self._training is not None
        digest = self._training.digest_before(batches)
        return {"root": self._root, "pass": self._training.number, "batches": batches, "digest": digest}

    def iterate(self, loader: Any, plain: Callable[[Any], Iterator[Any]]) -> Iterator[Any]:
        """Return a pass over a loader."""
        if os.getpid() != self._process:
            return plain(loader)
        own = find_sample_generators({name: getattr(loader, name, None) for name in _PARTS})
        streams = [*global_sample_generators(), *own.values()]
        if self._awaited is None or loader_order_key(self._awaited[1]()) != loader_order_key(loader):
            return _KeyedPass(
                loader, plain, streams, random_key(self._root, _OTHERS, _stream_state_number(streams))
            )
        refuse_loader(loader)
        if self._is_new:  # which seed the user gave to a loader's own generator counts, too
            self._root, self._is_new = (
                random_key(self._root, _stream_state_number(streams[_NUM_GLOBAL:])),
                False,
            )
        number, place = self._awaited[0], self._place
        begun = self._training = _KeyedPass(loader, plain, streams, random_key(self._root, number), number)
        skip = self._skipped(loader, place["batches"]) if place.get("pass") == number else None
        if skip is not None:
            begun.skip, begun.seeds = skip, self._seeds
            if place.get("workers") == getattr(loader, "num_workers", None):  # else others draw other numbers
                begun.expected = place["digest"]
        begun.is_over = self.is_over
        return begun


class _KeyedPass:
    """The iterator of a pass; it is made with the first batch, when the framework has told samplers the epoch."""

    def __init__(
        self,
        loader: Any,
        plain: Callable[[Any], Iterator[Any]],
        streams: Sequence[SampleGenerator],
        key: int,
        number: int | None = None,
    ) -> None:
        self._loader, self._plain, self._streams, self._key = loader, plain, streams, key
        self.number = number
        """Of the pass, where it is trained on."""
        self.skip, self.seeds = 0, ""
        self.expected: list[Any] | None = None
        """A batch's number, and its digest before the kill."""
        self.is_over = False
        self._fetched = 0
        self._rows: dict[int, list[Any]] = {}  # of the last batches, by their number
        self._iterator: Iterator[Any] | None = None

    def digest_before(self, batches: int) -> list[Any] | None:
        """Return the number of the last batch up to a place whose rows are kept, and their digest."""
        number = max((each for each in self._rows if each <= batches), default=None)
        return None if number is None else [number, digest_samples(self._rows[number])]

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self.is_over:
            raise StopIteration
        if self._iterator is None:
            self._loader._iterator = None  # persistent workers stand where the last pass left them
            self._iterator = self._call_with_key(self._key, lambda: self._plain(self._loader))
            for _ in range(self.skip):
                self._fetch_batch()
        return self._fetch_batch()

    def _fetch_batch(self) -> Any:
        assert self._iterator is not None
        number, self._fetched = self._fetched, self._fetched + 1
        batch = self._call_with_key(random_key(self._key, self._fetched), self._iterator.__next__)
        if self.number is not None:
            self._rows[number] = _first_rows_of(batch)
            self._rows.pop(number - _NUM_KEPT, None)
        if (
            self.expected is not None
            and self.expected[0] == number
            and self.expected != self.digest_before(number)
        ):
            raise OptionError(
                f"ExactResume can't go on exactly: batch {number} of this epoch, counted from 0, holds other numbers than before "
                f"the kill, so the data are not the same, or draw from something that no seed sets.{self.seeds} Have them made the "
                "same at each start (a seed for each split, generator and file), or give ExactResume an empty directory."
            )
        return batch

    def _call_with_key(self, key: int, call: Callable[[], Any]) -> Any:
        """Return what a call returns with the streams set from a key, and put them back."""
        before = [stream.state() for stream in self._streams]
        for number, stream in enumerate(self._streams):
            stream.seed(key if number < _NUM_GLOBAL else random_key(key, number))
        try:
            return call()
        finally:
            for stream, state in zip(self._streams, before, strict=True):
                stream.restore(state)


def _keyed_iter(loader: Any) -> Iterator[Any]:
    assert _plain_iter is not None
    active = _active() if _active is not None else None
    return _plain_iter(loader) if active is None else active.iterate(loader, _plain_iter)


def loader_order_key(loader: Any) -> tuple[int, ...]:
    """Return by what the passes over the same batches are known; Accelerate makes a loader anew to leave out the first ones."""
    if isinstance(data := getattr(loader, "dataset", None), IterableDataset):
        return id(data), getattr(loader, "batch_size", None) or 0
    samplers = (getattr(loader, name, None) for name in ("batch_sampler", "sampler"))
    sampler: Any = next((each for each in samplers if each is not None), None)
    return (id(sampler.batch_sampler if type(sampler).__name__ == "SkipBatchSampler" else sampler),)


def _stream_state_number(streams: Sequence[SampleGenerator]) -> int:
    """Return a number of where streams stand: an evaluation draws other numbers each time, and none of the training's."""
    states = [each.state() for each in streams]
    content = repr([each.tolist() if isinstance(each, torch.Tensor) else each for each in states])
    return int.from_bytes(hashlib.blake2b(content.encode(), digest_size=8).digest())


def _first_rows_of(batch: Any) -> list[Any]:
    """Return the first rows of a batch, for a digest: to copy them takes a few of a hundred times what that takes."""
    try:
        return [_first_rows(leaf) for _, leaf in batch_leaves_by_name(batch)]
    except BatchError:  # a mapping that can't be walked
        return []


def _first_rows(leaf: Any) -> Any:
    """Return a copy of the first rows of an array on the CPU, None of another, and of anything else its digest."""
    if isinstance(leaf, np.ndarray):
        is_plain = leaf.dtype != np.dtype(object)  # whose bytes are addresses
        return (leaf[:_NUM_ROWS] if leaf.ndim else leaf).copy() if is_plain else None
    if not isinstance(leaf, torch.Tensor):
        return digest_samples([leaf])
    is_plain = leaf.layout == torch.strided and leaf.device == torch.device("cpu") and not leaf.is_nested
    rows = leaf[:_NUM_ROWS] if is_plain and leaf.dim() else leaf
    return rows.detach().clone(memory_format=torch.contiguous_format) if is_plain else None


def refuse_loader(loader: Any, *more: Any) -> None:
    """Raise an OptionError for several loaders, and one whose passes can't be gone through again."""
    if more:
        raise OptionError(
            f"ExactResume keeps the place in one training loader, and this training has {1 + len(more)}. Give one DataLoader, over "
            "a data set that returns what they return."
        )
    kind = type(loader)
    if not isinstance(loader, DataLoader) or kind.__iter__ is not DataLoader.__iter__:
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
