# SPDX-License-Identifier: Apache-2.0
"""Whether a stream's own state is all of it: tried in a process of its own, against batches that were read."""

import dataclasses
import multiprocessing
from typing import NamedTuple

from truestep.checkpoints.tree import encode_state
from truestep.core.errors import CheckpointError
from truestep.engine.data.options import DataOptions
from truestep.engine.data.streaming import SampleStream, StreamBatches, StreamReading, StreamStart
from truestep.engine.data.workers import WorkerPool

SECONDS = 120.0  # a stream that takes longer to come back to its place is as well read again


class StateTrial(NamedTuple):
    """What came of it."""

    holds: bool
    why: str


def try_stream_state(
    stream: SampleStream, reading: StreamReading, start: StreamStart, options: DataOptions
) -> StateTrial:
    """Load each worker's state into a fresh iterator, and read again what was read behind it.

    The process is forked, or gets a pickled copy of the stream, so that the stream here stays where it is.
    """
    assert start.workers is not None
    try:
        encode_state([each["data"] for each in start.workers])
    except CheckpointError as error:
        return StateTrial(False, f"no checkpoint can hold its own state ({error})")
    trying = StreamBatches(stream, reading)
    trying.start = start
    if options.num_workers in ("auto", 0):  # nobody asked for workers, so nothing is done when they start
        if (options.start_method or multiprocessing.get_context().get_start_method()) != "fork":
            # A process that is not forked runs the user's file again, which may not be written for that.
            return StateTrial(
                False, "its own state can't be tried without workers on this system: write num_workers=1"
            )
        options = dataclasses.replace(options, worker_init=None)
    try:
        pool = WorkerPool(trying, len(start.workers), options, timeout_seconds=SECONDS)
        try:
            faults = [piece.fault for piece in pool.batches() if piece is not None and piece.fault]
        finally:
            pool.close()
    except Exception as error:  # noqa: BLE001 -- whatever it is, reading again needs no state
        return StateTrial(False, f"its own state could not be tried ({_cause(error)})")
    if faults:
        return StateTrial(False, faults[0])
    return StateTrial(True, "its own state was tried: it gives the batches that were read behind it")


def _cause(error: Exception) -> str:
    """Return what was raised; of an error in a worker, whose message is a traceback, the last line."""
    lines = str(error).strip().splitlines() or [""]
    if "Caught " in lines[0]:
        return next((line for line in reversed(lines) if line.startswith(type(error).__name__)), lines[-1])
    return f"{type(error).__name__}: {lines[0]}"
