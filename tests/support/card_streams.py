# SPDX-License-Identifier: Apache-2.0
"""Streams and events of the stand-in (`card.py`): copies that nobody has waited for have not arrived."""

import threading
from contextlib import contextmanager

import torch
from torch.utils._python_dispatch import _disable_current_modes

LATER = 3  # questions until a stream that nobody waits for is done


@contextmanager
def unseen():
    """Have no mode, and no graph, see what is done in a `with` block."""
    with torch._C.DisableTorchFunction(), _disable_current_modes(), torch.no_grad():
        yield


class CardStream:
    """Work in order."""

    _card: object
    """Set by it."""

    def __init__(self, device=None, priority=0):
        self.device = self._card.device(device)
        self._queued, self._done, self._lock = [], 0, threading.Lock()

    def put(self, work):
        self._queued.append(work)

    @property
    def position(self):
        return len(self._queued)

    def is_done(self, position):
        return self._done >= position

    def finish(self, position=None):
        with self._lock, unseen():
            while self._done < (len(self._queued) if position is None else position):
                self._queued[self._done]()
                self._queued[self._done] = None
                self._done += 1

    def record_event(self, event=None):
        event = event or torch.Event(self.device)
        event.record(self)
        return event

    def wait_stream(self, stream):
        stream.finish()  # so that what comes after in this one sees it

    def wait_event(self, event):
        event.wait(self)

    def synchronize(self):
        self._card.read("a stream's synchronize")
        self.finish()

    def query(self):
        return self.is_done(self.position)

    def is_capturing(self):
        return False

    def __enter__(self):
        self._before = self._card.current[self.device.index]
        self._card.current[self.device.index] = self
        return self

    def __exit__(self, *_):
        self._card.current[self.device.index] = self._before


class CardEvent:
    """A place in a stream; of the current device's current one, if none is named."""

    _card: object

    def __init__(self, device=None, **_):
        self._stream, self._position, self._asked = None, 0, 0

    def record(self, stream=None):
        self._stream = stream or self._card.current[self._card.index]
        self._position, self._asked = self._stream.position, 0

    def query(self):
        self._asked += 1
        if self._stream is not None and self._asked > LATER:
            self._stream.finish(self._position)
        return self._stream is None or self._stream.is_done(self._position)

    def synchronize(self):
        """Wait; of a copy that was sent off earlier this is no hidden synchronisation, and so not counted."""
        if self._stream is not None:
            self._stream.finish(self._position)

    def wait(self, stream=None):
        self.synchronize()
