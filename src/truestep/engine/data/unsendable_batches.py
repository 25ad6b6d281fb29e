# SPDX-License-Identifier: Apache-2.0
"""A batch that could not be sent from its worker: Python prints that there and drops the batch, so a training waited forever."""

import errno
from multiprocessing import queues
from typing import Any, NamedTuple

_OF_FILES = "Too many open files"


class UnsentBatch(NamedTuple):
    """What a worker sends in the place of a batch that could not be sent: why, and what to write."""

    message: str


def send_reasons_for_unsent_batches() -> None:
    """Have this worker send an `UnsentBatch` for each batch that can't be sent."""
    queues.Queue._on_queue_feeder_error = _send_failure_reason  # type: ignore[attr-defined]  # a static method there: as a function it gets the queue


def _send_failure_reason(queue: Any, error: Exception, item: Any) -> None:
    """Called in the thread that sends, before the next item: behind a stream's end, say, torch would not look for this one."""
    if isinstance(item, tuple) and len(item) == 2:  # the batch's number, and the batch
        queue._sem.acquire(block=False)  # which was released with the item that is not sent
        queue._buffer.appendleft((item[0], UnsentBatch(_unsent_batch_message(error))))


def _unsent_batch_message(error: Exception) -> str:
    begin = f"a batch could not be sent from its worker process: {type(error).__name__}: {str(error).strip().rstrip('.')}. "
    if _OF_FILES in str(error) or (isinstance(error, OSError) and error.errno == errno.EMFILE):
        return begin + (
            "Each tensor on its way, or of a batch that is kept, is an open file. Write ulimit -n 65536 before the start, "
            'torch.multiprocessing.set_sharing_strategy("file_system") in the script, or num_workers=0.'
        )
    return begin + (
        "What samples and collate make is pickled on its way. Return tensors, numbers, texts, and objects of classes and functions "
        "that stand at the top level of a module, or write num_workers=0."
    )
