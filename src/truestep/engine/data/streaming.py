# SPDX-License-Identifier: Apache-2.0
"""Reading a stream batch by batch, here or in a worker, with the state it is in after each batch."""

import copy
import inspect
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple, cast

import torch
from torch.utils.data import get_worker_info

from truestep.core.errors import DataError
from truestep.core.wording import a_type
from truestep.engine.data.probe import digest_samples
from truestep.engine.data.progress import note_sample
from truestep.engine.data.randomness import SampleRandomness
from truestep.engine.data.read_digest import digest_batch
from truestep.engine.data.samples import Collate


class StreamedBatch(NamedTuple):
    """A batch from a stream: which worker read it, of how many samples, where that worker stands, a digest of what it holds, and
    what the worker began with."""

    worker: int
    batch: Any
    num_samples: int | None
    state: dict[str, Any] | None
    digest: str
    first: str | None


class StreamStart(NamedTuple):
    """Where reading begins: the epoch and, after a resume, each worker's state and the next one."""

    epoch: int
    workers: list[dict[str, Any]] | None = None
    turn: int = 0


class SampleStream:
    """A stream that can be started for an epoch: an iterable, or a function that makes one."""

    def __init__(self, data: Any) -> None:
        self.data = data
        self.is_function = inspect.isroutine(data) or not hasattr(data, "__iter__")
        self._takes_epoch = self.is_function and _wants_epoch(data)
        self.reads_once = not self.is_function and isinstance(data, Iterator)
        self._was_read = False

    @property
    def may_have_state(self) -> bool:
        """Whether it says by itself that it keeps a state."""
        return hasattr(self.data, "state_dict") and hasattr(self.data, "load_state_dict")

    @property
    def advice(self) -> str:
        """Return what to write so that it gives the same samples when it is read again."""
        if self.is_function:
            where = "Let the function take epoch, and draw"
        else:
            where = "Give it set_epoch(epoch), which is called before each pass, and draw"
        return (
            f"{where} its order from that, as in random.Random(epoch): not from the clock, the process or an unseeded generator, "
            "nor on from the pass before."
        )

    def iterable(self, epoch: int) -> Any:
        """Return the iterable of `epoch`."""
        if self.is_function:
            return self.data(epoch) if self._takes_epoch else self.data()
        if self.reads_once and self._was_read:
            raise DataError(
                f"data is {a_type(self.data)} that was read already, and can be read only once: "
                f"there is nothing for epoch {epoch} or for a resumed run. Give the function that makes it, "
                "without calling it (it may take the number of the epoch), or an object with __iter__."
            )
        self._was_read = True
        if hasattr(self.data, "set_epoch"):
            self.data.set_epoch(epoch)
        return self.data


def _wants_epoch(function: Callable[..., Any]) -> bool:
    parameters = inspect.signature(function).parameters.values()
    return any(
        p.name == "epoch" or (p.default is p.empty and p.kind <= p.POSITIONAL_OR_KEYWORD) for p in parameters
    )


class StreamBatches(torch.utils.data.IterableDataset[Any]):
    """The batches of one epoch of a stream, as one worker (or the training process) reads them."""

    def __init__(
        self, stream: SampleStream, seed: int, batch_size: int | None, collate: Collate, *, drop_last: bool
    ):
        self._stream, self._batch_size = stream, batch_size
        self._collate, self._drop_last = collate, drop_last
        self._seed = seed
        self.start = StreamStart(0)

    def __iter__(self) -> Iterator[StreamedBatch | None]:
        info = get_worker_info()
        randomness = SampleRandomness(self._seed, self._stream.data)
        reader = _Reader(self._stream, randomness, info.id if info else 0)
        if self.start.workers is not None:
            saved = self.start.workers[reader.worker]
            if saved["ended"]:
                return
            if reader.worker < self.start.turn:
                yield None  # in the place of a batch that was used before the stream was resumed
            reader.resume(saved)
        yield from self._pieces(reader)

    def _pieces(self, reader: "_Reader") -> Iterator[StreamedBatch]:
        while True:
            with reader.randomness.borrowed():
                samples = reader.read(self.start.epoch, self._batch_size or 1)
                short = self._batch_size is not None and len(samples) < self._batch_size
                if not samples or (short and self._drop_last):
                    return
                first = digest_samples(samples[:1]) if reader.is_first() else None
                batch = samples[0] if self._batch_size is None else self._collate(samples)
            number = None if self._batch_size is None else len(samples)
            state, digest = reader.state(ended=short), digest_batch(batch)
            yield StreamedBatch(reader.worker, batch, number, state, digest, first)
            if short:
                return


class _Reader:
    """Reads one worker's share of a stream, each sample with its own random state."""

    def __init__(self, stream: SampleStream, randomness: SampleRandomness, worker: int) -> None:
        self.worker, self.randomness = worker, randomness
        self._stream = stream
        self._saved: dict[str, Any] | None = None
        self._iterable: Any = None
        self._iterator: Iterator[Any] | None = None
        self._position = 0
        self._batches = 0

    def resume(self, saved: dict[str, Any]) -> None:
        """Begin where `state` was taken."""
        self._saved, self._position = saved["data"], saved["position"]

    def read(self, epoch: int, count: int) -> list[Any]:
        """Return the next `count` samples, fewer at the end, and set the generators for collating them."""
        use = f"stream {self.worker}"
        if self._iterator is None:
            # the same in every worker, up to the first sample: whoever shuffles files and then takes a
            # worker's part of them must come to the same shuffle everywhere
            self.randomness.set_to(self.randomness.keys("stream", epoch, 0)[0])
            self._iterator = self._opened(epoch)
        keys = self.randomness.keys(use, epoch, self._position, count)
        if self._position == 0:
            keys = [*self.randomness.keys("stream", epoch, 0), *keys[1:]]
        samples = list(islice(self._keyed(self._iterator, keys), count))
        self.randomness.set_to(self.randomness.keys(f"{use} collate", epoch, self._position)[0])
        self._position += len(samples)
        self._batches += 1
        return samples

    def _keyed(self, iterator: Iterator[Any], keys: list[list[int]]) -> Iterator[Any]:
        for offset, row in enumerate(keys):
            note_sample(self._position + offset, self._position + offset)
            self.randomness.set_to(row)
            try:
                sample = next(iterator)
            except StopIteration:
                return
            except Exception as error:
                number = self._position + offset
                error.add_note(f"This happened while sample {number} of the stream was read.")
                raise
            yield sample

    def _opened(self, epoch: int) -> Iterator[Any]:
        self._iterable = self._stream.iterable(epoch)
        if self._saved is not None and not hasattr(self._iterable, "load_state_dict"):
            iterator: Any = iter(self._iterable)
            iterator.load_state_dict(self._saved)
            return cast(Iterator[Any], iterator)
        if self._saved is not None:
            self._iterable.load_state_dict(self._saved)
        return iter(self._iterable)

    def is_first(self) -> bool:
        """Return whether the first batch was just read."""
        return self._batches == 1

    def state(self, *, ended: bool) -> dict[str, Any] | None:
        """Return where reading stands, or None for a stream that keeps no state."""
        holder = stream_state_reader(self._iterable, self._iterator)
        if holder is None:
            return None
        # copied, since a worker sends it later, from another thread
        return {"position": self._position, "data": copy.deepcopy(holder()), "ended": ended}


def stream_state_reader(iterable: Any, iterator: Any) -> Callable[[], Any] | None:
    """Return what gives the state of a stream: its own `state_dict`, or else its iterator's."""
    for holder in (iterable, iterator):
        if hasattr(holder, "state_dict") and hasattr(holder, "load_state_dict"):
            method: Callable[[], Any] = holder.state_dict
            return method
    return None
