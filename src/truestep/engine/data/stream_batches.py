# SPDX-License-Identifier: Apache-2.0
"""A stream as it is given, and its batches as one worker, or the training process, reads them."""

import inspect
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.utils.data import get_worker_info

from truestep.core.errors import DataError
from truestep.core.text_formatting import a_type
from truestep.core.user_frames import warn_user
from truestep.engine.data.batch_digest import chained_digest, digest_batch
from truestep.engine.data.randomness import SampleRandomness
from truestep.engine.data.sample_loading import Collate
from truestep.engine.data.sample_probe import digest_samples
from truestep.engine.data.stream_reader import StreamReader, has_stream_state


class StreamedBatch(NamedTuple):
    """A batch from a stream, and what is known of it."""

    worker: int
    """Who read it."""
    batch: Any
    num_samples: int | None
    digest: str
    """Of what it holds."""
    first: str | None
    """A digest of the first samples that the worker read, with its first batch."""
    state: dict[str, Any] | None
    """Where the worker's stream stands behind it, if that was asked just then."""
    seconds: float = 0.0
    """That it took to read it."""
    stateless: str = ""
    """Why its stream can't be asked for its state, where that has just turned out."""
    fault: str | None = None
    """How the stream's state gives other batches than were read before: a message in the place of a batch."""

    @property
    def is_end(self) -> bool:
        """Whether it is no batch, but says that the worker's stream is over behind the batch before."""
        return not self.digest and self.fault is None


class StreamStart(NamedTuple):
    """Where reading begins: the epoch and, after a resume, each worker's state and the next one."""

    epoch: int
    workers: list[dict[str, Any]] | None = None
    turn: int = 0
    only_compares: bool = False
    """Whether a worker ends where it has read again what was read behind its state."""


class SampleStream:
    """A stream that can be started for an epoch: an iterable, or a function that makes one."""

    def __init__(self, data: Any) -> None:
        self.data = data
        self.is_function = inspect.isroutine(data) or not hasattr(data, "__iter__")
        self._takes_epoch = self.is_function and _takes_epoch_argument(data)
        self.reads_once = not self.is_function and isinstance(data, Iterator)
        self._was_read = False

    @property
    def kind(self) -> str:
        """Return its class; a function that makes it and an iterator that it would make are one."""
        return "function" if self.is_function or self.reads_once else type(self.data).__qualname__

    @property
    def may_have_state(self) -> bool:
        """Whether it says by itself that it keeps a state."""
        return has_stream_state(self.data)

    @property
    def advice(self) -> str:
        """Return what to write so that it gives the same samples when it is read again."""
        if not self.is_function and is_library_object(self.data, "webdataset"):
            return BY_EPOCH_OF_WEBDATASET
        if self.is_function:
            where = "Let the function take epoch, and draw"
        else:
            where = "Give it set_epoch(epoch), which is called before each pass, and draw"
        return (
            f"{where} its order from that, as in random.Random(epoch): not from the clock, the process or an unseeded generator, "
            "nor on from the pass before."
        )

    @property
    def has_unseeded_shuffle(self) -> bool:
        """Whether it is known to come in another order each time: webdataset's shuffles without a seed, its `resampled=`."""
        if not is_library_object(self.data, "webdataset"):
            return False
        stages = getattr(self.data, "pipeline", ())
        # its shards drawn again and again
        if any(getattr(each, "deterministic", True) is False for each in stages):
            return True
        options = [vars(each).get("kw", {}) for each in stages if _stage_function_name(each) == "_shuffle"]
        return any(each.get("rng") is None and each.get("seed") is None for each in options)

    def iterable(self, epoch: int, *, goes_on: bool = False) -> Any:
        """Return the iterable of `epoch`; one that `goes_on` is given its state before it is read."""
        if self.is_function:
            return self._make_iterable(epoch)
        if self.reads_once and self._was_read and not (goes_on and self.may_have_state):
            raise DataError(
                f"data is {a_type(self.data)} that was read already, and can be read only once: "
                f"there is nothing for epoch {epoch} or for a resumed run. Give the function that makes it, "
                "without calling it (it may take the number of the epoch), or an object with __iter__."
            )
        self._was_read = True
        if get_worker_info() is None:
            self.set_epoch(epoch)
        return self.data

    def _make_iterable(self, epoch: int) -> Any:
        """Return what the function gives for an epoch."""
        made = self.data(epoch) if self._takes_epoch else self.data()
        if not hasattr(made, "__iter__") and not hasattr(made, "__getitem__"):
            raise DataError(
                f"data is a function that returned {a_type(made)}, which can't be read from front to back. Write it with yield, "
                "without async, or let it return an object with __iter__."
            )
        return made

    @property
    def receives_epoch(self) -> bool:
        """Whether it learns which pass is read."""
        return self._takes_epoch or hasattr(self.data, "set_epoch")

    def set_epoch(self, epoch: int) -> None:
        """Tell the data which pass is read: where workers read it before they start, since `datasets` keeps the number in memory
        that all of them share, and adds to it."""
        if not self.is_function and hasattr(self.data, "set_epoch"):
            self.data.set_epoch(epoch)


def is_library_object(data: Any, name: str) -> bool:
    """Whether the class of an object, or one of those it is derived from, is a library's."""
    return any(kind.__module__.partition(".")[0] == name for kind in type(data).__mro__)


def _stage_function_name(stage: Any) -> str:
    return getattr(getattr(stage, "f", None), "__name__", "")


BY_EPOCH_OF_WEBDATASET = (
    "Give run.data a function of the epoch that makes it, with a generator for each shuffle:\n"
    "    def web(epoch):\n"
    "        files = sorted(urls)\n"
    "        random.Random(epoch).shuffle(files)\n"
    "        data = wds.WebDataset(files, shardshuffle=False)\n"
    "        return data.shuffle(1000, rng=random.Random(epoch)).decode()\n"
    "    train = run.data(web, batch_size=32)\n"
)


def _takes_epoch_argument(function: Callable[..., Any]) -> bool:
    parameters = inspect.signature(function).parameters.values()
    return any(
        p.name == "epoch" or (p.default is p.empty and p.kind <= p.POSITIONAL_OR_KEYWORD) for p in parameters
    )


@dataclass(frozen=True, kw_only=True)
class StreamReading:
    """How one process reads a stream."""

    seed: int
    batch_size: int | None
    collate: Collate
    drop_last: bool
    rank: int | None = None
    """Whose share it is, where each rank reads one of its own."""
    num_compared: int = 1
    """Samples at the front by which two readings of the same are known; these are drawn alike on all ranks."""


class StreamBatches(torch.utils.data.IterableDataset[Any]):
    """The batches of one epoch of a stream, as one worker (or the training process) reads them."""

    def __init__(self, stream: SampleStream, reading: StreamReading) -> None:
        self._stream, self._reading = stream, reading
        self.start = StreamStart(0)

    def __iter__(self) -> Iterator[StreamedBatch | None]:
        info = get_worker_info()
        worker, start = info.id if info else 0, self.start
        randomness = SampleRandomness(self._reading.seed, self._stream.data)
        reader = StreamReader(self._stream, self._reading, randomness, worker)
        if start.workers is None:
            yield from self._read_pieces(reader)
            return
        saved = start.workers[worker]
        if saved["ended"]:
            return
        if worker < start.turn and not start.only_compares:
            yield None  # in the place of a batch that was used before the stream was resumed
        reader.resume(saved)
        fault = _reread_difference(self._read_pieces(reader), saved["since"], saved["digest"])
        if fault is not None:
            yield StreamedBatch(worker, None, None, "", None, None, fault=fault)
        if not start.only_compares:
            yield from self._read_pieces(reader)

    def _read_pieces(self, reader: StreamReader) -> Iterator[StreamedBatch]:
        size = self._reading.batch_size
        while not reader.ended:
            begin = time.perf_counter()
            with reader.randomness.borrowed():
                samples = reader.read(self.start.epoch)
                short = size is not None and len(samples) < size
                reader.ended = short or not samples
                if not samples or (short and self._reading.drop_last):
                    yield StreamedBatch(reader.worker, None, 0, "", None, reader.state_if_due())
                    return
                first = (
                    digest_samples(samples[: self._reading.num_compared])
                    if reader.is_first_batch_read()
                    else None
                )
                batch = samples[0] if size is None else self._reading.collate(samples)
            number, digest = None if size is None else len(samples), digest_batch(batch)
            seconds, state = time.perf_counter() - begin, reader.state_if_due()
            yield StreamedBatch(
                reader.worker, batch, number, digest, first, state, seconds, reader.take_stateless_reason()
            )


def _reread_difference(again: Iterator[StreamedBatch], count: int, digest: str) -> str | None:
    """Read `count` batches again, and return how they differ from those that were read before."""
    found = ""
    for number in range(count):
        piece = next(again, None)
        if piece is None or piece.is_end:
            return f"its own state gives {number:,} of the {count:,} batches that were read behind it"
        found = chained_digest(found, piece.digest)
    if found == digest:
        return None
    return f"its own state gives other batches: the {count:,} that were read behind it are not those that it gives now"


def warn_of_duplicates(pieces: Iterator[StreamedBatch | None]) -> Iterator[StreamedBatch]:
    """Warn when two workers begin with the same sample: each of them then reads the whole stream."""
    begun: dict[str, int] = {}
    for piece in pieces:
        if piece is None:
            continue
        if piece.first is not None and begun.setdefault(piece.first, piece.worker) != piece.worker:
            warn_user(
                f"workers {begun[piece.first]} and {piece.worker} began with the same sample: each reads "
                "the whole stream, so every sample comes several times an epoch. In __iter__ ask "
                "torch.utils.data.get_worker_info() and read only that worker's part, or write "
                "num_workers=0."
            )
        yield piece
