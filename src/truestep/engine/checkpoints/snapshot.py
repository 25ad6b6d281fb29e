# SPDX-License-Identifier: Apache-2.0
"""A private copy of a state, taken while its owner waits, from which a writer works at leisure."""

from collections.abc import Iterator

import torch
from torch import Tensor

from truestep.engine.checkpoints.layout import FileLayout
from truestep.engine.checkpoints.memory import bytes_of
from truestep.engine.checkpoints.save import FileImage


class SnapshotBuffers:
    """Host memory for copies, one flat buffer a file, kept from save to save.

    Allocating memory costs several times what copying into memory in use does, so that only the first save
    pays for it. With CUDA tensors the buffers are pinned and the copies are queued on the current stream: the
    caller goes on at once, and later work of that stream can't overtake them.
    """

    def __init__(self) -> None:
        self._buffers: dict[str, Tensor] = {}

    def take(self, files: list[FileLayout]) -> list[FileImage]:
        """Copy what the files are to hold. The images are valid until the next call."""
        images = [self._take(file) for file in files]
        wanted = {file.name for file in files}
        self._buffers = {name: buffer for name, buffer in self._buffers.items() if name in wanted}
        return images

    def _take(self, file: FileLayout) -> FileImage:
        sources = [item.region.tensor for item in file.placed]
        devices = {source.device for source in sources if source.is_cuda}
        buffer = self._buffer(file.name, file.data_bytes, pinned=bool(devices))
        for item, source in zip(file.placed, sources, strict=True):
            place = buffer[item.begin : item.end].view(source.dtype).view(source.shape)
            place.copy_(source, non_blocking=True)
        events = [torch.cuda.current_stream(device).record_event() for device in devices]

        def pieces() -> Iterator[memoryview]:
            for event in events:
                event.synchronize()
            yield memoryview(file.header())
            yield bytes_of(buffer[: file.data_bytes])

        return FileImage(file.name, file.manifest_entries, file.data_bytes, pieces)

    def _buffer(self, name: str, size: int, *, pinned: bool) -> Tensor:
        buffer = self._buffers.get(name)
        if buffer is None or len(buffer) < size or buffer.is_pinned() != pinned:
            self._buffers.pop(name, None)  # free the old one before the new one is made
            buffer = torch.empty(size, dtype=torch.uint8, pin_memory=pinned)
            self._buffers[name] = buffer
        return buffer


def direct_image(file: FileLayout) -> FileImage:
    """Return an image that reads the tensors themselves, for a writer during which their owner waits."""

    def pieces() -> Iterator[memoryview]:
        yield memoryview(file.header())
        for item in file.placed:
            yield bytes_of(item.region.tensor.cpu().contiguous())

    return FileImage(file.name, file.manifest_entries, file.data_bytes, pieces)
