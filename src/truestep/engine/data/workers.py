# SPDX-License-Identifier: Apache-2.0
"""Worker processes: how many, and how requests travel to them and batches back."""

import os
import pickle
import signal
import threading
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from types import FrameType
from typing import Any

import torch
from torch.multiprocessing.reductions import shared_cache
from torch.utils.data import DataLoader, IterableDataset

from truestep.core import nested_structures
from truestep.core.device_specific import is_cpu_device
from truestep.core.errors import DataError
from truestep.core.os_specific import WORKER_ENDED
from truestep.engine.automatic_choice import Choice
from truestep.engine.data.data_change_detection import data_change_markers
from truestep.engine.data.options import DataOptions
from truestep.engine.data.order import BatchRequest
from truestep.engine.data.packed_tensors import PackedBatch, pack_batch, unpack_batch
from truestep.engine.data.unsendable_batches import UnsentBatch
from truestep.engine.data.worker_progress import WorkerProgress, prepare_worker
from truestep.engine.data.worker_timeouts import POLL_SECONDS, WorkerPatience, WorkerWaitError

# Below these, handing batches over and starting processes costs more than it saves (docs/data.md).
CHEAP_SAMPLE_SECONDS = 50e-6
CHEAP_EPOCH_SECONDS = 0.5
MOST_WORKERS = 16


class PinnedBatch:
    """A batch on its way from a worker, which torch's pinning thread is to copy into page-locked memory."""

    def __init__(self, batch: Any) -> None:
        self.batch = batch

    def pin_memory(self) -> "PinnedBatch":
        """Return the batch with its tensors in page-locked memory."""
        batch = unpack_batch(self.batch) if isinstance(self.batch, PackedBatch) else self.batch
        return PinnedBatch(nested_structures.map_batch_leaves(_pin_leaf, batch))


def _pin_leaf(leaf: Any) -> Any:
    return leaf.pin_memory() if hasattr(leaf, "pin_memory") else leaf


class _RequestSampler:
    """The requests for the workers; torch's loader reads it as its sampler."""

    def __init__(self) -> None:
        self.requests: Iterator[BatchRequest] = iter(())

    def __iter__(self) -> Iterator[BatchRequest]:
        return self.requests


class WorkerPool:
    """Workers that load whatever batches they are asked for; they stay alive from epoch to epoch while the data set is the same."""

    def __init__(
        self,
        dataset: Any,
        num_workers: int,
        options: DataOptions,
        *,
        pin: bool = False,
        patience: WorkerPatience | None = None,
    ) -> None:
        self._arguments = dataset, num_workers, options, pin
        self._patience = patience  # None: a batch takes as long as it takes
        self._feed = _RequestSampler()
        try:
            self._progress = WorkerProgress(num_workers, options.start_method)
        except OSError as error:  # its table is shared memory
            raise _workers_not_started_error(num_workers, error) from error
        self._loader: DataLoader[Any] | None = None
        self._iterator: Any = None
        self._copied: list[object] = []
        """What tells whether the data set is as the workers have it."""
        self._busy = False

    def batches(self, requests: Iterator[BatchRequest] | None = None) -> Iterator[Any]:
        """Yield the batch of each request, in order; of a stream, whatever comes."""
        if self._busy:  # two loops over one source at once: the second gets workers of its own
            dataset, num_workers, options, pin = self._arguments
            other = WorkerPool(dataset, num_workers, options, pin=pin)
            with closing(other):
                yield from other.batches(requests)
            return
        self._busy = True
        try:
            yield from self._batches_from_workers(requests or iter(()))
        finally:
            self._busy = False

    def _batches_from_workers(self, requests: Iterator[BatchRequest]) -> Iterator[Any]:
        self._feed.requests = requests
        self._start_workers()
        while True:
            try:
                with worker_deaths_raised:
                    batch = next(self._iterator)
                _forget_received_storages()
            except StopIteration:
                return
            except RuntimeError as error:
                if self._can_keep_waiting(error):
                    continue
                self._explain_worker_death(str(error), error)
                raise
            except (EOFError, ConnectionError) as error:  # killed while a batch of its was being fetched
                self._explain_worker_death(self._ended_workers_message(), error)
                raise
            if isinstance(batch, UnsentBatch):
                raise DataError(batch.message)
            if isinstance(batch, PackedBatch):
                yield unpack_batch(batch)
            else:
                yield batch.batch if isinstance(batch, PinnedBatch) else batch

    def _new_loader(self) -> DataLoader[Any]:
        dataset, num_workers, options, pin = self._arguments
        with _suppress_worker_warnings():
            return DataLoader(
                dataset,
                batch_size=None,
                sampler=None if isinstance(dataset, IterableDataset) else self._feed,
                num_workers=num_workers,
                collate_fn=_pack_for_pinning if pin else pack_batch,
                pin_memory=pin,
                worker_init_fn=partial(prepare_worker, self._progress, options.worker_init),
                multiprocessing_context=options.start_method,
                generator=torch.Generator(),  # or the loader would draw from the global one
                prefetch_factor=options.prefetch,
                persistent_workers=True,
                timeout=POLL_SECONDS if self._patience else 0.0,
            )

    def _start_workers(self) -> None:
        """Start the workers or, where they run already, give them the new requests."""
        marks = (
            data_change_markers(self._arguments[0].dataset) if hasattr(self._arguments[0], "dataset") else []
        )
        if self._loader is not None and marks != self._copied:
            self.close()
        if self._loader is None:
            self._loader, self._copied = self._new_loader(), marks
        try:
            with _suppress_worker_warnings(), worker_deaths_raised:
                self._iterator = iter(self._loader)
            defer_worker_deaths()
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            self.close()
            raise DataError(
                f"the data set can't be sent to worker processes: {error}. A worker that is "
                f"not forked gets a pickled copy of it. Define its class and functions at the top level of a "
                "module, open files and connections in the first __getitem__, or write num_workers=0."
            ) from error
        except (OSError, RuntimeError) as error:
            self._explain_worker_death(str(error), error)  # one of those that run already is dead
            self.close()
            raise _workers_not_started_error(self._arguments[1], error) from error

    def _can_keep_waiting(self, error: RuntimeError) -> bool:
        """Whether torch says that no batch has come yet, and the workers are worth waiting for; those that are not are killed."""
        if self._patience is None or not str(error).startswith("DataLoader timed out"):
            return False
        workers = getattr(self._iterator, "_workers", [])
        try:
            self._patience.check(self._progress.places(), [each.pid for each in workers])
        except WorkerWaitError:
            for each in workers:
                each.kill()  # torch would give it five seconds to end by itself
            raise
        return True

    def _ended_workers_message(self) -> str:
        """Return, in torch's words, which workers have ended; empty if none has."""
        workers = getattr(self._iterator, "_workers", [])
        for worker in workers:
            worker.join(timeout=1.0 / len(workers))  # a death is known to its parent a moment later
        ended = [worker for worker in workers if worker.exitcode is not None]
        return "; ".join(f"DataLoader worker (pid {w.pid}) ended with {w.exitcode}" for w in ended)

    def _explain_worker_death(self, message: str, error: Exception) -> None:
        """Say which samples were being loaded when a worker was killed."""
        if not message.startswith("DataLoader worker"):
            return
        self.close()
        raise DataError(
            f"a worker process died {self._progress.describe_workers(message)}: {message.strip().rstrip('.')}. "
            "Most often the machine was out of memory, or native code crashed. Load that sample with "
            "num_workers=0 to see, or write fewer workers or a smaller prefetch."
        ) from error

    def close(self) -> None:
        """End the workers now, not when the garbage collector finds them."""
        # torch has no public way: it ends workers when the iterator is collected, at any time and in any thread
        end = getattr(self._iterator, "_shutdown_workers", None)
        self._loader = self._iterator = None
        if end is not None:
            end()


def _workers_not_started_error(num_workers: int, error: Exception) -> DataError:
    return DataError(
        f"the {num_workers} worker processes can't be started: {str(error).strip().rstrip('.')}. The system ran out of "
        "processes or threads (ulimit -u), of memory, or of shared memory (/dev/shm; docker run --shm-size). Write fewer workers, "
        "or num_workers=0."
    )


def _pack_for_pinning(batch: Any) -> PinnedBatch:
    return PinnedBatch(pack_batch(batch))


def _forget_received_storages() -> None:
    """Free what torch keeps of batches that are gone.

    It remembers the last 128 received storages by weak references. Each holds a block of 112 bytes, which lies between what the
    activations of two updates took: so these are not used again, and memory grows (a CNN: twice that of a loop by hand).
    """
    with shared_cache.lock:
        shared_cache.free_dead_references()  # type: ignore[no-untyped-call]


@contextmanager
def _suppress_worker_warnings() -> Iterator[None]:
    """Leave out what torch and python say about a number of workers that was chosen on purpose."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="This DataLoader will create")
        warnings.filterwarnings("ignore", message="Got pickle error")  # what follows says more
        warnings.filterwarnings(
            "ignore", message=".*multi-threaded, use of fork", category=DeprecationWarning
        )
        yield


def choose_num_workers(sample_seconds: float, num_samples: int, device: torch.device) -> Choice:
    """Return how many workers "auto" means: none for cheap samples, else a share of the processors."""
    from truestep.machine.environment.container import read_container_limits, usable_cpus

    # torchrun's variable: so many processes of this machine choose workers now
    cpus = usable_cpus(read_container_limits()) // max(1, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    cost = f"a sample takes {sample_seconds * 1e6:,.0f} µs, an epoch's {sample_seconds * num_samples:,.1f} s"
    if sample_seconds < CHEAP_SAMPLE_SECONDS or sample_seconds * num_samples < CHEAP_EPOCH_SECONDS:
        return Choice("workers", "0", f"{cost}: less than handing them over costs")
    if cpus < 2:
        return Choice("workers", "0", f"{cost}, but there is one processor")
    # on a CPU the model needs processors too
    count = min(MOST_WORKERS, cpus - 1 if not is_cpu_device(device) else cpus // 2)
    return Choice("workers", str(count), f"{cost}; {cpus} processors, training on {device.type}")


# torch's handler for SIGCHLD raises in whatever line the training process is at: between the moments of an optimizer and its
# weights, or in a line of metrics half written. Here it is asked only while a batch is waited for; a death before that is
# found then.


class _WorkerDeathsRaised(threading.local):
    """Within this block a worker's death is raised at once, as torch's RuntimeError, also one that came before."""

    is_on = False

    def __enter__(self) -> None:
        self.is_on = True
        try:
            torch._C._error_if_any_worker_fails()
        except BaseException:
            self.is_on = False
            raise

    def __exit__(self, *_: object) -> None:
        self.is_on = False


worker_deaths_raised = _WorkerDeathsRaised()
_of_torch: Any = None


def defer_worker_deaths() -> None:
    """Take torch's handler over, once it is in place; only a main thread can."""
    global _of_torch
    if WORKER_ENDED is None:  # there torch asks the workers themselves
        return
    current = signal.getsignal(WORKER_ENDED)
    if (
        current is _handle_child_signal
        or not callable(current)
        or threading.current_thread() is not threading.main_thread()
    ):
        return
    _of_torch = current
    signal.signal(WORKER_ENDED, _handle_child_signal)


def _handle_child_signal(number: int, frame: FrameType | None) -> None:
    if worker_deaths_raised.is_on:
        _of_torch(number, frame)
