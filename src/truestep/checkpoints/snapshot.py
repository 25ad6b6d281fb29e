# SPDX-License-Identifier: Apache-2.0
"""A private copy of a state, taken while its owner waits, from which a writer works beside the training."""

from collections.abc import Collection, Iterator

import torch
from torch import Tensor

from truestep.checkpoints.checkpoint_commit import CheckpointFileImage
from truestep.checkpoints.concurrent_copy import CopyPiece, SharedCopy, UncopiedPiece, read_and_release_pages
from truestep.checkpoints.copy_memory_check import CopyMemoryAvailability, CopyMemoryChecker
from truestep.checkpoints.file_layout import FileLayout
from truestep.checkpoints.tensor_memory_view import tensor_memoryview
from truestep.core.device_specific import async_devices, copy_to_host_async, synchronize_device

MIN_SHARED_BYTES = 32 << 20  # a new buffer of less is filled before a writer has begun


class CheckpointStagingBuffers:
    """Host memory for copies, one flat buffer a file, kept from save to save where there is room.

    Allocating memory costs several times what copying into memory in use does, so that only the first save
    pays for it. For tensors of a device that runs ahead the buffers are pinned and the copies are queued on its current
    stream: the caller goes on at once, and later work of that stream can't overtake them.
    """

    def __init__(self, room: CopyMemoryChecker | None = None) -> None:
        self._room = room or CopyMemoryChecker()
        self._buffers: dict[str, Tensor] = {}
        self._places: dict[str, tuple[FileLayout, Tensor, list[Tensor]]] = {}

    def take(
        self, files: list[FileLayout], sources: list[list[Tensor]], shared: SharedCopy, *, may_share: bool
    ) -> list[CheckpointFileImage]:
        """Copy what the files are to hold. The images are valid until the next call.

        With `may_share` what goes into large new buffers is not copied but added to `shared`; and all of it, without a buffer,
        where there is no memory for a copy.
        """
        room = self._check_copy_memory(files, may_share=may_share)
        if room is CopyMemoryAvailability.NONE:
            self._keep_only_buffers({})
            return _uncopied_images(files, sources, shared)
        shared.is_kept = room is CopyMemoryAvailability.TO_KEEP
        share = shared if may_share else None
        images = [
            self._copy_file_tensors(file, tensors, share, is_kept=shared.is_kept)
            for file, tensors in zip(files, sources, strict=True)
        ]
        self._keep_only_buffers({file.name for file in files} if shared.is_kept else {})
        return images

    def _check_copy_memory(self, files: list[FileLayout], *, may_share: bool) -> CopyMemoryAvailability:
        held = sum(map(len, self._buffers.values()))
        return self._room.find(sum(file.data_bytes for file in files), held, must_copy=not may_share)

    def _keep_only_buffers(self, wanted: Collection[str]) -> None:
        """Let go of all buffers but these; the images hold theirs as long as they are needed."""
        self._buffers = {name: buffer for name, buffer in self._buffers.items() if name in wanted}
        self._places = {name: place for name, place in self._places.items() if name in wanted}

    def _copy_file_tensors(
        self, file: FileLayout, sources: list[Tensor], shared: SharedCopy | None, *, is_kept: bool
    ) -> CheckpointFileImage:
        devices = async_devices(sources)
        before = self._buffers.get(file.name)
        buffer = self._reuse_or_allocate_buffer(file.name, file.data_bytes, pinned=bool(devices))
        places = self._tensor_views_in_buffer(file, buffer)
        if shared is not None and buffer is not before and len(buffer) >= MIN_SHARED_BYTES and not devices:
            return _image_of_shared_copy(file, CopyPiece(buffer, places, sources), shared)
        with torch.no_grad():
            events = copy_to_host_async(places, sources)

        def pieces() -> Iterator[memoryview]:
            for event in events:
                event.synchronize()
            yield memoryview(file.header)
            memory = tensor_memoryview(buffer[: file.data_bytes])
            yield from [memory] if is_kept else read_and_release_pages(memory)

        return CheckpointFileImage(file, pieces)

    def _tensor_views_in_buffer(self, file: FileLayout, buffer: Tensor) -> list[Tensor]:
        """Return the memory of each tensor in a buffer, kept as long as layout and buffer are the same."""
        found = self._places.get(file.name)
        if found is None or found[0] is not file or found[1] is not buffer:
            places = [
                buffer[item.begin : item.end].view(item.region.torch_dtype).view(item.region.shape)
                for item in file.placed
            ]
            found = self._places[file.name] = (file, buffer, places)
        return found[2]

    def _reuse_or_allocate_buffer(self, name: str, size: int, *, pinned: bool) -> Tensor:
        buffer = self._buffers.get(name)
        if buffer is None or len(buffer) < size or buffer.is_pinned() != pinned:
            self._buffers.pop(name, None)  # free the old one before the new one is made
            buffer = torch.empty(size, dtype=torch.uint8, pin_memory=pinned)
            self._buffers[name] = buffer
        return buffer


def _image_of_shared_copy(file: FileLayout, whole: CopyPiece, shared: SharedCopy) -> CheckpointFileImage:
    return _image_of_pieces(file, shared.add(list(whole.parts())), shared)


def _image_of_pieces(file: FileLayout, numbers: range, shared: SharedCopy) -> CheckpointFileImage:
    def pieces() -> Iterator[memoryview]:
        yield memoryview(file.header)
        yield from shared.read(numbers)

    return CheckpointFileImage(file, pieces, lambda: shared.release(numbers.stop))


def _uncopied_images(
    files: list[FileLayout], sources: list[list[Tensor]], shared: SharedCopy
) -> list[CheckpointFileImage]:
    """Return images that read the tensors themselves; their owner waits until they are read."""
    shared.is_alone = True
    for device in {device for tensors in sources for device in async_devices(tensors)}:
        synchronize_device(device)  # another thread reads them, whose stream is another one
    return [
        _image_of_pieces(file, shared.add([UncopiedPiece(source) for source in tensors]), shared)
        for file, tensors in zip(files, sources, strict=True)
    ]


def direct_image(file: FileLayout, sources: list[Tensor]) -> CheckpointFileImage:
    """Return an image that reads the tensors themselves, for a writer during which their owner waits."""

    def pieces() -> Iterator[memoryview]:
        yield memoryview(file.header)
        for source in sources:
            # One tensor at a time on the host: memory for the largest is enough.
            yield tensor_memoryview(source.detach().cpu().contiguous())

    return CheckpointFileImage(file, pieces)
