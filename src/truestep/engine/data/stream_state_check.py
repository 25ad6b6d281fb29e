# SPDX-License-Identifier: Apache-2.0
"""Whether a stream's own state is all of it: tried in a process of its own, against batches that were read."""

import dataclasses
import multiprocessing
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from truestep.checkpoints.state_codec import encode_state
from truestep.core.errors import CheckpointError
from truestep.core.os_specific import open_connections, redirect_all_to_devnull
from truestep.core.text_formatting import error_line
from truestep.engine.data.options import DataOptions
from truestep.engine.data.stream_batches import SampleStream, StreamBatches, StreamReading
from truestep.engine.data.stream_position import StreamPlace
from truestep.engine.data.worker_timeouts import WorkerPatience, WorkerWaitError
from truestep.engine.data.workers import WorkerPool


class StateTrial(NamedTuple):
    """What came of it."""

    holds: bool
    why: str
    was_left: bool = False
    """Whether it was ended before anything came of it, since the process only waited."""


def try_stream_state(
    stream: SampleStream, reading: StreamReading, place: StreamPlace, options: DataOptions
) -> StateTrial:
    """Load each worker's state into a fresh iterator, and read again what was read behind it.

    The process is forked, or gets a pickled copy of the stream, so that the stream here stays where it is.
    """
    trying = StreamBatches(stream, reading)
    trying.start = start = place.start(only_compares=True)
    assert start.workers is not None
    try:
        encode_state([each["data"] for each in start.workers])
    except CheckpointError as error:
        return StateTrial(False, f"no checkpoint can hold its own state ({error})")
    alone = _options_of_trial(options)
    if alone is None:
        return StateTrial(
            False, "its own state can't be tried without workers on this system: write num_workers=1"
        )
    try:
        pool = WorkerPool(trying, len(start.workers), alone, patience=_trial_patience(place))
        try:
            faults = [piece.fault for piece in pool.batches() if piece is not None and piece.fault]
        finally:
            pool.close()
    except WorkerWaitError as error:
        return StateTrial(False, f"its own state was not tried ({error})", was_left=True)
    except Exception as error:  # noqa: BLE001 -- whatever it is, reading again needs no state
        return StateTrial(False, f"its own state could not be tried ({error_line(error)})")
    if faults:
        return StateTrial(False, faults[0])
    return StateTrial(True, "its own state was tried: it gives the batches that were read behind it")


def _options_of_trial(options: DataOptions) -> DataOptions | None:
    """Return how the processes of a trial start; None where they would run the user's file, which may not be written for that."""
    is_forked = (options.start_method or multiprocessing.get_context().get_start_method()) == "fork"
    has_workers = options.num_workers not in ("auto", 0)
    if not is_forked:
        return options if has_workers else None
    # where nobody asked for workers, nothing of the user's is done when they start
    prepare = partial(
        _prepare_forked_process, open_connections(), options.worker_init if has_workers else None
    )
    return dataclasses.replace(options, worker_init=prepare)


def _prepare_forked_process(
    connections: Mapping[int, tuple[int, int]], user: Callable[[int], None] | None, worker: int
) -> None:
    """Prepare a forked process that reads beside this one: an answer that it took from a shared connection would be lost here."""
    redirect_all_to_devnull(connections)
    if user is not None:
        user(worker)


def _trial_patience(place: StreamPlace) -> WorkerPatience:
    """Return how long a trial may take: what reading took here, some times over."""
    if not place.seconds:  # nothing was read in this process
        return WorkerPatience(QUIET_UNKNOWN, MOST)
    return WorkerPatience(max(QUIET, 3 * place.longest), min(MOST, max(LEAST, 10 * place.seconds)))


QUIET, LEAST = 5.0, 20.0  # seconds without a sample or computing, and in all
# a stream that takes longer to come back to its place is as well read again
QUIET_UNKNOWN, MOST = 20.0, 120.0
