# SPDX-License-Identifier: Apache-2.0
"""A private copy of a state, taken while its owner waits, from which a writer works at leisure."""

from collections.abc import Iterator

import torch
from torch import Tensor

from truestep.engine.checkpoints.layout import FileLayout
from truestep.engine.checkpoints.memory import bytes_of
from truestep.engine.checkpoints.regions import Region
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
        on_cuda = any(region.tensor.is_cuda for region in file.regions)
        buffer = self._buffer(file.name, file.data_bytes, pinned=on_cuda)
        targets = [_target(buffer, region, at) for region, at in zip(file.regions, file.offsets, strict=True)]
        sources = [region.tensor for region in file.regions]
        for target, source in zip(targets, sources, strict=True):
            target.copy_(source, non_blocking=True)
        devices = {source.device for source in sources if source.is_cuda}
        events = [torch.cuda.current_stream(device).record_event() for device in devices]

        def pieces() -> Iterator[memoryview]:
            for event in events:
                event.synchronize()
            yield memoryview(file.header)
            yield bytes_of(buffer[: file.data_bytes])

        return FileImage(file.name, len(file.header) + file.data_bytes, pieces)

    def _buffer(self, name: str, size: int, *, pinned: bool) -> Tensor:
        buffer = self._buffers.get(name)
        if buffer is None or len(buffer) < size or buffer.is_pinned() != pinned:
            self._buffers.pop(name, None)  # free the old one before the new one is made
            buffer = torch.empty(size, dtype=torch.uint8, pin_memory=pinned)
            self._buffers[name] = buffer
        return buffer


def _target(buffer: Tensor, region: Region, at: int) -> Tensor:
    place = buffer[at : at + region.byte_count]
    return place.view(region.tensor.dtype).view(region.tensor.shape)


def direct_image(file: FileLayout) -> FileImage:
    """Return an image that reads the tensors themselves, for a writer during which their owner waits."""

    def pieces() -> Iterator[memoryview]:
        yield memoryview(file.header)
        for region in file.regions:
            yield bytes_of(region.tensor.cpu().contiguous())

    return FileImage(file.name, len(file.header) + file.data_bytes, pieces)
