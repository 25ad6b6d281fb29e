# SPDX-License-Identifier: Apache-2.0
"""Trying a batch again."""

from collections.abc import Sequence

from truestep.core.buffers import MovingBufferSnapshot
from truestep.core.random_streams import host_random_streams, set_host_random_streams


class BatchRetry:
    """What is put back before a batch is tried again: buffers and the host's random streams (torch's are keyed anew)."""

    def __init__(self, buffers: Sequence[MovingBufferSnapshot]) -> None:
        self._buffers = buffers
        self._streams = host_random_streams()

    def restore(self) -> None:
        """Put them back."""
        for buffers in self._buffers:
            buffers.restore()
        set_host_random_streams(self._streams)
