# SPDX-License-Identifier: Apache-2.0
"""Reading a stream sample by sample, each with its own random state, and asking it for its state now and then."""

import copy
import inspect
import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from truestep.core.text_formatting import error_line
from truestep.engine.data.failing_file_line import describe_file_line
from truestep.engine.data.randomness import SampleRandomness
from truestep.engine.data.worker_progress import note_sample

if TYPE_CHECKING:
    from truestep.engine.data.stream_batches import SampleStream, StreamReading

FEW = 3
"""Batches behind which a state is asked for first, and that are read again behind a state before it is trusted."""
SHARE_OF_TIME = 0.02  # that asking for a state, and copying it, may take


class StreamReader:
    """Reads one worker's share of a stream."""

    def __init__(
        self, stream: "SampleStream", reading: "StreamReading", randomness: SampleRandomness, worker: int
    ) -> None:
        self.worker, self.randomness, self.ended = worker, randomness, False
        self._stream, self._reading = stream, reading
        self._saved: dict[str, Any] | None = None
        self._iterable: Any = None
        self._iterator: Iterator[Any] | None = None
        self._position = self._batches = 0
        self._due_at, self._has_no_state, self._stateless = 0.0, False, ""

    def resume(self, saved: dict[str, Any]) -> None:
        """Begin where `state` was taken."""
        self._saved, self._position = saved["data"], saved["position"]

    def read(self, epoch: int) -> list[Any]:
        """Return the samples of the next batch, fewer at the end, and set the generators for collating them."""
        count = self._reading.batch_size or 1
        if self._iterator is None:
            # the same in every worker, up to the first sample: whoever shuffles files and then takes a
            # worker's part of them must come to the same shuffle everywhere
            self.randomness.set_generators(self.randomness.keys("stream", epoch, 0)[0])
            self._iterator = self._open_iterator(epoch)
        keys = self._next_sample_keys(epoch, count)
        samples = list(islice(self._iterate_with_keys(self._iterator, keys), count))
        self.randomness.set_generators(
            self.randomness.keys(f"{self._randomness_use} collate", epoch, self._position)[0]
        )
        self._position += len(samples)
        self._batches += 1
        return samples

    @property
    def _randomness_use(self) -> str:
        rank = self._reading.rank
        return f"stream {self.worker}" if rank is None else f"stream {self.worker} of rank {rank}"

    def _next_sample_keys(self, epoch: int, count: int) -> list[list[int]]:
        """Return the keys of the next samples; of the first ones, those that are the same on all ranks, or in all workers."""
        keys = self.randomness.keys(self._randomness_use, epoch, self._position, count)
        if self._reading.rank is not None and (alike := self._reading.num_compared - self._position) > 0:
            shared = self.randomness.keys(f"stream {self.worker}", epoch, self._position, min(alike, count))
            keys = [*shared, *keys[len(shared) :]]
        if self._position == 0:
            keys = [*self.randomness.keys("stream", epoch, 0), *keys[1:]]
        return keys

    def _iterate_with_keys(self, iterator: Iterator[Any], keys: list[list[int]]) -> Iterator[Any]:
        for offset, row in enumerate(keys):
            note_sample(self._position + offset, self._position + offset)
            self.randomness.set_generators(row)
            try:
                sample = next(iterator)
            except StopIteration:
                return
            except Exception as error:
                number = self._position + offset
                error.add_note(
                    f"This happened while sample {number} of the stream was read{describe_file_line(error)}."
                )
                raise
            yield sample

    def _open_iterator(self, epoch: int) -> Iterator[Any]:
        self._iterable = self._stream.iterable(epoch, goes_on=self._saved is not None)
        if self._saved is not None and not has_stream_state(self._iterable):
            iterator: Any = iter(self._iterable)
            iterator.load_state_dict(self._saved)
            return cast(Iterator[Any], iterator)
        if self._saved is not None:
            self._iterable.load_state_dict(self._saved)
        return iter(self._iterable)

    def is_first_batch_read(self) -> bool:
        """Return whether the first batch was just read."""
        return self._batches == 1

    def state_if_due(self) -> dict[str, Any] | None:
        """Return where reading stands; None for a stream that keeps no state, or was asked for it a moment ago.

        A state can be large (a buffer of samples), so copying it has a small share of the time, and the batches behind it are
        read again.
        """
        reader = None if self._has_no_state else stream_state_reader(self._iterable, self._iterator)
        if reader is not None and self.ended:
            return {"position": self._position, "data": None, "ended": True}
        begin = time.perf_counter()
        if reader is None or self._batches % FEW or begin < self._due_at:
            return None
        state = self._copy_state(reader)
        if self._has_no_state:
            return None
        end = time.perf_counter()
        self._due_at = end + (end - begin) / SHARE_OF_TIME
        return {"position": self._position, "data": state, "ended": False}

    def _copy_state(self, reader: Callable[[], Any]) -> Any:
        """Return a copy of the state, which a worker sends later, from another thread."""
        how = "taken"
        try:
            state = reader()
            how = "copied"
            return copy.deepcopy(state)
        except Exception as error:  # noqa: BLE001 -- many wrappers have the method and not the state; reading again needs none
            self._has_no_state = True
            self._stateless = f"its own state can't be {how} ({error_line(error)})"

    def take_stateless_reason(self) -> str:
        """Return, once, why the stream can't be asked for its state; nothing where it can."""
        why, self._stateless = self._stateless, ""
        return why


def has_stream_state(holder: Any) -> bool:
    """Whether it keeps a state that can be asked for as it is: where arguments are wanted, those are its library's loader's."""
    methods = [getattr(holder, name, None) for name in ("state_dict", "load_state_dict")]
    if not all(map(callable, methods)):
        return False
    try:
        inspect.signature(cast(Callable[..., Any], methods[0])).bind()
    except TypeError:
        return False
    except ValueError:  # written in C: nobody can look
        return True
    return True


def stream_state_reader(iterable: Any, iterator: Any) -> Callable[[], Any] | None:
    """Return what gives the state of a stream: its own `state_dict`, or else its iterator's."""
    for holder in (iterable, iterator):
        if has_stream_state(holder):
            method: Callable[[], Any] = holder.state_dict
            return method
    return None
