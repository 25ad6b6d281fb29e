# SPDX-License-Identifier: Apache-2.0
"""The commit: a checkpoint appears under its name whole, checked and on the disk, or not at all.

A folder of a temporary name beside the target gets the files, then the manifest; each is synced, then the
folder. One rename publishes it, and one sync of the parent makes that last. Only then is it acknowledged.
"""

import hashlib
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from truestep.engine.checkpoints.files import (
    CHUNK_BYTES,
    Files,
    remove_tree,
    sync,
    sync_folder,
    write_all,
    write_file,
)
from truestep.engine.checkpoints.manifest import (
    MANIFEST_NAME,
    FileEntry,
    Manifest,
    Summary,
    TensorEntry,
)
from truestep.engine.checkpoints.names import TEMPORARY, name_of


@dataclass(frozen=True)
class FileImage:
    """A file to be written: its name, its tensors, their bytes, and the pieces it consists of."""

    name: str
    tensors: Callable[[], dict[str, TensorEntry]]
    data_bytes: int
    pieces: Callable[[], Iterator[memoryview]]


@dataclass(frozen=True, kw_only=True)
class Pending:
    """A checkpoint about to be written."""

    summary: Summary
    images: list[FileImage]
    state: Any

    @property
    def bytes(self) -> int:
        """Bytes of its tensors."""
        return sum(image.data_bytes for image in self.images)


def commit(files: Files, directory: Path, pending: Pending) -> Path:
    """Write a checkpoint and return its folder once nothing can take it away any more.

    After an OSError nothing was published, unless it was the last sync that failed: then the folder is
    whole, but might not survive a loss of power, and it counts as not written.
    """
    name = name_of(pending.summary)
    temporary = directory / f"{TEMPORARY}{name}-{uuid.uuid4().hex[:8]}"
    try:
        files.make_folder(temporary)
        _fill(files, temporary, pending)
        files.rename(temporary, directory / name)
    except BaseException:
        discard(files, temporary)
        raise
    sync_folder(files, directory)
    return directory / name


def _fill(files: Files, folder: Path, pending: Pending) -> None:
    entries = {image.name: _write_image(files, folder / image.name, image) for image in pending.images}
    tensors = {name: entry for image in pending.images for name, entry in image.tensors().items()}
    manifest = Manifest(summary=pending.summary, files=entries, tensors=tensors, state=pending.state)
    write_file(files, folder / MANIFEST_NAME, [memoryview(manifest.to_bytes())])
    sync_folder(files, folder)


def _write_image(files: Files, path: Path, image: FileImage) -> FileEntry:
    """Write a file; the checksum is that of the memory it comes from, not of what the disk says it got."""
    digest, size = hashlib.sha256(), 0
    descriptor = files.create(path)
    try:
        for chunk in _chunks(image.pieces()):
            digest.update(chunk)
            write_all(files, descriptor, chunk)
            size += len(chunk)
        sync(files, descriptor)
    finally:
        files.close(descriptor)
    return FileEntry(size, digest.hexdigest())


def _chunks(pieces: Iterable[memoryview]) -> Iterable[memoryview]:
    for piece in pieces:
        for start in range(0, len(piece), CHUNK_BYTES):
            yield piece[start : start + CHUNK_BYTES]


def discard(files: Files, folder: Path) -> None:
    """Remove what is left of an attempt, as far as that is possible; opening the store removes the rest."""
    with suppress(OSError):
        remove_tree(files, folder)
