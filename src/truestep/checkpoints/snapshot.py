# SPDX-License-Identifier: Apache-2.0
"""A private copy of a state, taken while its owner waits, from which a writer works beside the training."""

from collections.abc import Iterator

import torch
from torch import Tensor

from truestep.checkpoints.layout import FileLayout
from truestep.checkpoints.memory import saved_bytes_of
from truestep.checkpoints.save import CheckpointFileImage
from truestep.checkpoints.shared_copy import CopyPiece, SharedCopy
from truestep.core.accelerator import copy_late, devices_ahead

MIN_SHARED_BYTES = 32 << 20  # a new buffer of less is filled before a writer has begun


class CheckpointStaging:
    """Host memory for copies, one flat buffer a file, kept from save to save.

    Allocating memory costs several times what copying into memory in use does, so that only the first save
    pays for it. For tensors of a device that runs ahead the buffers are pinned and the copies are queued on its current
    stream: the caller goes on at once, and later work of that stream can't overtake them.
    """

    def __init__(self) -> None:
        self._buffers: dict[str, Tensor] = {}
        self._places: dict[str, tuple[FileLayout, Tensor, list[Tensor]]] = {}

    def take(
        self, files: list[FileLayout], sources: list[list[Tensor]], shared: SharedCopy | None = None
    ) -> list[CheckpointFileImage]:
        """Copy what the files are to hold. The images are valid until the next call.

        What goes into large new buffers is not copied but added to `shared`, if that is given.
        """
        images = [self._take(file, tensors, shared) for file, tensors in zip(files, sources, strict=True)]
        wanted = {file.name for file in files}
        self._buffers = {name: buffer for name, buffer in self._buffers.items() if name in wanted}
        self._places = {name: place for name, place in self._places.items() if name in wanted}
        return images

    def _take(
        self, file: FileLayout, sources: list[Tensor], shared: SharedCopy | None
    ) -> CheckpointFileImage:
        devices = devices_ahead(sources)
        before = self._buffers.get(file.name)
        buffer = self._buffer(file.name, file.data_bytes, pinned=bool(devices))
        places = self._places_in(file, buffer)
        if shared is not None and buffer is not before and len(buffer) >= MIN_SHARED_BYTES and not devices:
            return _shared_image(file, CopyPiece(buffer, places, sources), shared)
        with torch.no_grad():
            events = copy_late(places, sources)

        def pieces() -> Iterator[memoryview]:
            for event in events:
                event.synchronize()
            yield memoryview(file.header)
            yield saved_bytes_of(buffer[: file.data_bytes])

        return CheckpointFileImage(file, pieces)

    def _places_in(self, file: FileLayout, buffer: Tensor) -> list[Tensor]:
        """Return the memory of each tensor in a buffer, kept as long as layout and buffer are the same."""
        found = self._places.get(file.name)
        if found is None or found[0] is not file or found[1] is not buffer:
            places = [
                buffer[item.begin : item.end].view(item.region.torch_dtype).view(item.region.shape)
                for item in file.placed
            ]
            found = self._places[file.name] = (file, buffer, places)
        return found[2]

    def _buffer(self, name: str, size: int, *, pinned: bool) -> Tensor:
        buffer = self._buffers.get(name)
        if buffer is None or len(buffer) < size or buffer.is_pinned() != pinned:
            self._buffers.pop(name, None)  # free the old one before the new one is made
            buffer = torch.empty(size, dtype=torch.uint8, pin_memory=pinned)
            self._buffers[name] = buffer
        return buffer


def _shared_image(file: FileLayout, whole: CopyPiece, shared: SharedCopy) -> CheckpointFileImage:
    numbers = shared.add(list(whole.parts()))

    def pieces() -> Iterator[memoryview]:
        yield memoryview(file.header)
        yield from shared.read(numbers)

    return CheckpointFileImage(file, pieces, lambda: shared.release(numbers.stop))


def direct_image(file: FileLayout, sources: list[Tensor]) -> CheckpointFileImage:
    """Return an image that reads the tensors themselves, for a writer during which their owner waits."""

    def pieces() -> Iterator[memoryview]:
        yield memoryview(file.header)
        for source in sources:
            # One tensor at a time on the host: memory for the largest is enough.
            yield saved_bytes_of(source.detach().cpu().contiguous())

    return CheckpointFileImage(file, pieces)
