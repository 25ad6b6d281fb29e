# SPDX-License-Identifier: Apache-2.0
"""The randomness of a sample: every generator that it draws from is set from (seed, epoch, position).

To set one costs as much as a small sample, so only those that are drawn from are set. A `SampleDrawing` finds out which:
the first time all are set, and those that moved are noted. From then on the others are compared once a batch, and if
one of them moved, the batch is loaded again with all of them set, as the first was.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import numpy as np

from truestep.core.errors import DataError
from truestep.core.random_streams import GOLDEN, MASK, mix_random_keys
from truestep.engine.data.generator_search import find_sample_generators
from truestep.engine.data.generators import SampleGenerator, global_sample_generators
from truestep.engine.data.keys import derive_sample_key, sample_keys_at

KEYS_AT_ONCE = 2048  # keys are computed for so many positions ahead: numpy's cost per call is paid once

T = TypeVar("T")


class SampleKeys:
    """The keys of samples, one for each generator, computed for many positions at a time."""

    def __init__(self, seed: int, use: str, num_columns: int) -> None:
        self._seed, self._use = seed, use
        self._columns = np.arange(num_columns, dtype=np.uint64) * np.uint64(GOLDEN)
        self._epoch, self._begin, self._end = -1, 0, 0
        self._known: dict[int, list[int]] = {}

    def column(self, number: int, epoch: int, position: int, count: int) -> list[int]:
        """Return the keys of one generator for `count` samples from `position` on."""
        if epoch != self._epoch or position < self._begin or position + count > self._end:
            self._epoch, self._begin, self._end = epoch, position, position + max(count, KEYS_AT_ONCE)
            key = derive_sample_key(self._seed, self._use, epoch)
            self._samples = sample_keys_at(key, np.arange(position, self._end))
            self._known = {}
        if number not in self._known:
            self._known[number] = mix_random_keys(self._samples + self._columns[number]).tolist()
        first = position - self._begin
        return self._known[number][first : first + count]


class SampleDrawing:
    """What draws, the samples or a function that collates them, and which generators it was seen to draw from."""

    def __init__(
        self, seed: int, use: str, streams: list[tuple[int, SampleGenerator]], *, all_set: bool
    ) -> None:
        self._streams = streams
        self._keys = SampleKeys(seed, use, 1 + max(column for column, _ in streams))
        self._all = list(range(len(streams)))
        self._drawn: list[int] = self._all if all_set else []
        self._never_economises = all_set
        self.known = all_set

    @property
    def is_set(self) -> list[int]:
        """Which generators are set before each call."""
        return self._drawn if self.known else self._all

    def forget(self) -> None:
        """Set all generators at the next calls, and watch which of them are drawn from."""
        self.known = self._never_economises

    def call(
        self, epoch: int, position: int, arguments: list[Any], call: Callable[[Any], T], results: list[T]
    ) -> list[T]:
        """Append `call(argument)` of each argument to `results`, with the generators set for its position."""
        count = len(arguments)
        # Whoever asks for the key of the sample at hand counts the results: that costs the others nothing.
        _current.set(self._keys.column(0, epoch, position, count), results)
        columns = [self._keys.column(self._streams[i][0], epoch, position, count) for i in self.is_set]
        rows = zip(*columns, strict=True)
        if not self.known:
            self._call_and_watch(rows, arguments, call, results)
        elif len(columns) == 1:  # the usual case, without a loop in the loop
            seed = self._streams[self._drawn[0]][1].seed
            for own, argument in zip(columns[0], arguments, strict=True):
                seed(own)
                results.append(call(argument))
        elif not columns:
            for argument in arguments:
                results.append(call(argument))  # noqa: PERF401 -- an error is to know how many there were
        else:
            seeds = [self._streams[i][1].seed for i in self._drawn]
            for row, argument in zip(rows, arguments, strict=True):
                for seed, own in zip(seeds, row, strict=True):
                    seed(own)
                results.append(call(argument))
        return results

    def _call_and_watch(
        self, rows: Iterable[Any], arguments: list[Any], call: Callable[[Any], T], results: list[T]
    ) -> None:
        """Set all generators for each call, and note which of them it moves."""
        drawn = set(self._drawn)
        for row, argument in zip(rows, arguments, strict=True):
            for (_, stream), own in zip(self._streams, row, strict=True):
                stream.seed(own)
            others = [
                (i, self._streams[i][1], self._streams[i][1].state()) for i in self._all if i not in drawn
            ]
            results.append(call(argument))
            drawn |= {i for i, stream, state in others if stream.moved_from(state)}
        # Kept from batch to batch: who drew once may draw again, and setting one too many changes nothing.
        self._drawn, self.known = sorted(drawn), True


class LoadingPhase(NamedTuple):
    """A part of loading a batch: who draws in it, and what it makes of the result of the part before."""

    drawing: SampleDrawing
    work: Callable[[Any], Any]


class SampleRandomness:
    """Sets the global generators of python, numpy and torch, and those found inside a data set.

    `all_set`: before every sample set all of them, drawn from or not.
    """

    def __init__(self, seed: int, dataset: Any, *, all_set: bool = True) -> None:
        self._seed = seed
        self.found = find_sample_generators(dataset)
        # the three global generators share the first key
        self._streams: list[tuple[int, SampleGenerator]] = [
            (0, stream) for stream in global_sample_generators()
        ]
        self._streams += list(enumerate(self.found.values(), 1))
        self._all_set = all_set
        self._keys: dict[str, SampleKeys] = {}
        self._drawings: dict[str, SampleDrawing] = {}

    def keys(self, use: str, epoch: int, position: int, count: int = 1) -> list[list[int]]:
        """Return the keys of `count` samples from `position` on: one per sample and generator.

        `use` is what draws ("sample", "collate"): different uses draw unrelated numbers.
        """
        keys = self._keys.setdefault(use, SampleKeys(self._seed, use, 1 + len(self.found)))
        columns = [keys.column(number, epoch, position, count) for number, _ in self._streams]
        return [list(row) for row in zip(*columns, strict=True)]

    def set_generators(self, keys: list[int]) -> None:
        """Set every generator for the sample whose keys these are."""
        for (_, stream), key in zip(self._streams, keys, strict=True):
            stream.seed(key)
        _current.set(keys[:1], [])

    def drawing(self, use: str) -> SampleDrawing:
        """Return what is known of who draws for `use`."""
        if use not in self._drawings:
            self._drawings[use] = SampleDrawing(self._seed, use, self._streams, all_set=self._all_set)
        return self._drawings[use]

    def load(self, phases: list[LoadingPhase], *, put_back: bool) -> Any:
        """Return what the last phase makes; all are done again if one drew from a generator that was not set.

        With `put_back` every generator is afterwards as it was before.
        """
        if not all(phase.drawing.known for phase in phases):
            self._forget_drawings(phases)
        before = [stream.state() for _, stream in self._streams]
        changed: set[int] = set()
        try:
            try:
                return self._run_phases(phases, before, changed)
            except _UnsetGeneratorDrawnError:
                changed.update(range(len(before)))
            self._restore_generators(before, changed)
            self._forget_drawings(phases)
            return self._run_phases(phases, before, changed)
        finally:
            if put_back:
                self._restore_generators(before, changed)
            _current.set([], [])

    def _forget_drawings(self, phases: list[LoadingPhase]) -> None:
        for phase in phases:
            phase.drawing.forget()

    def _run_phases(self, phases: list[LoadingPhase], before: list[Any], changed: set[int]) -> Any:
        result = None
        for drawing, work in phases:
            unset = [
                (stream, stream.state() if i in changed else before[i])
                for i, (_, stream) in enumerate(self._streams)
                if i not in drawing.is_set
            ]
            changed.update(drawing.is_set)
            try:
                result = work(result)
            except Exception:
                # what it drew may be why it failed
                if any(stream.moved_from(state) for stream, state in unset):
                    raise _UnsetGeneratorDrawnError from None
                raise
            if any(stream.moved_from(state) for stream, state in unset):
                raise _UnsetGeneratorDrawnError
        return result

    def _restore_generators(self, states: list[Any], which: set[int]) -> None:
        for index in which:
            self._streams[index][1].restore(states[index])

    @contextmanager
    def borrowed(self) -> Iterator[None]:
        """Put every generator back to what it was before the block."""
        states = [stream.state() for _, stream in self._streams]
        try:
            yield
        finally:
            for (_, stream), state in zip(self._streams, states, strict=True):
                stream.restore(state)
            _current.set([], [])


class _UnsetGeneratorDrawnError(Exception):
    """A generator that was not set for the batch was drawn from."""


class _SamplesBeingLoaded(threading.local):
    """The keys of the samples that are being loaded, and those that are done: the next one is at hand."""

    keys: list[int] = []  # noqa: RUF012 -- never changed, only replaced
    done: list[Any] = []  # noqa: RUF012
    number: int | None = None  # of the sample that `generator` is for
    generator: "np.random.Generator"

    def set(self, keys: list[int], done: list[Any]) -> None:
        self.keys, self.done, self.number = keys, done, None


_current = _SamplesBeingLoaded()


def sample_rng() -> "np.random.Generator":
    """Return the generator of the sample that is being loaded: a function of (seed, epoch, position) alone.

    Call it inside `__getitem__`, a transform or an iterable data set; it goes on drawing where the same
    sample drew before. Raises `DataError` anywhere else.
    """
    if not _current.keys:
        raise DataError(
            "sample_rng() was called while no sample is being loaded in this thread, so there is no position "
            "to derive its numbers from. Call it inside __getitem__ or a transform, and pass the generator "
            "on to threads; elsewhere use numpy.random.default_rng(seed)."
        )
    number = min(len(_current.done), len(_current.keys) - 1)
    if _current.number != number:
        bits = np.random.Philox(key=(_current.keys[number] * GOLDEN + 1) & MASK)
        _current.number, _current.generator = number, np.random.Generator(bits)
    return _current.generator
