# SPDX-License-Identifier: Apache-2.0
"""Every file operation that checkpoints are made of, one method a system call.

Nothing else in this room touches the disk, so that tests can make each operation fail, stop before
or after it, or record it.
"""

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from truestep.core import os_specific

CHUNK_BYTES = 8 << 20


class CheckpointFiles:
    """The operations as the operating system offers them."""

    def make_folders(self, path: Path) -> None:
        """Create a folder and those above it, where they do not exist."""
        path.mkdir(parents=True, exist_ok=True)

    def make_folder(self, path: Path) -> None:
        """Create a folder that must not exist."""
        path.mkdir()

    def create(self, path: Path) -> int:
        """Create a file that must not exist, and return its descriptor."""
        return os_specific.open_no_follow(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)

    def write(self, descriptor: int, data: memoryview) -> int:
        """Write some of the data and return how many bytes were taken."""
        return os.write(descriptor, data)

    def write_back(self, descriptor: int, begin: int, size: int) -> None:
        """Have the disk begin with a part of a file, and keep none of it in memory that is on the disk; promises nothing."""
        os_specific.drop_page_cache(descriptor, begin, size)

    def sync(self, descriptor: int) -> None:
        """Return when everything written to the file or folder is on the disk."""
        os_specific.sync_file(descriptor)

    def close(self, descriptor: int) -> None:
        """Close a descriptor."""
        os.close(descriptor)

    def open(self, path: Path) -> int:
        """Open a file for reading; a symbolic link is refused."""
        return os_specific.open_no_follow(path, os.O_RDONLY)

    def open_folder(self, path: Path) -> int:
        """Open a folder, to sync what its entries are."""
        return os_specific.open_folder(path)

    def read(self, descriptor: int, buffer: memoryview, at: int) -> int:
        """Read some bytes from a place of the file on into the buffer and return how many; 0 at the end."""
        return os_specific.read_into_buffer_at(descriptor, buffer, at)

    def status(self, target: Path | int) -> os.stat_result:
        """Return type and size of a path (a link itself, not its target) or a descriptor."""
        return os.fstat(target) if isinstance(target, int) else target.lstat()

    def names(self, folder: Path) -> list[str]:
        """Return the names in a folder."""
        return os.listdir(folder)  # noqa: PTH208 -- names, not paths

    def rename(self, source: Path, target: Path) -> None:
        """Rename a folder or a file."""
        source.rename(target)

    def remove(self, path: Path) -> None:
        """Remove a file or a link."""
        path.unlink()

    def remove_folder(self, path: Path) -> None:
        """Remove an empty folder."""
        path.rmdir()

    def open_lock(self, path: Path) -> int:
        """Open a lock file for reading and writing; create it where there is none."""
        return os_specific.open_no_follow(path, os.O_RDWR | os.O_CREAT)

    def truncate(self, descriptor: int) -> None:
        """Make a file empty."""
        os.ftruncate(descriptor, 0)

    def lock(self, descriptor: int) -> None:
        """Take a file's lock, or raise BlockingIOError where another process holds it."""
        os_specific.lock_file(descriptor)


def write_all(files: CheckpointFiles, descriptor: int, data: memoryview) -> None:
    """Write every byte, however few each call takes, however often a signal interrupts."""
    while data:
        try:
            taken = files.write(descriptor, data)
        except InterruptedError:
            continue
        # or this would go on forever
        if taken == 0:
            raise OSError(errno.EIO, "the file takes no more bytes")
        data = data[taken:]


def read_into(files: CheckpointFiles, descriptor: int, buffer: memoryview, at: int) -> int:
    """Fill the buffer from a place of the file on and return how many bytes there were; fewer than asked at its end."""
    done = 0
    while done < len(buffer):
        try:
            got = files.read(descriptor, buffer[done:], at + done)
        except InterruptedError:
            continue
        if got == 0:
            break
        done += got
    return done


def read_bytes(files: CheckpointFiles, descriptor: int, size: int, at: int = 0) -> bytes:
    """Return bytes of a file from a place on; fewer than asked at its end."""
    buffer = memoryview(bytearray(size))
    return bytes(buffer[: read_into(files, descriptor, buffer, at)])


def read_chunks(files: CheckpointFiles, descriptor: int, begin: int, end: int) -> Iterator[memoryview]:
    """Yield the bytes between two places in pieces, through one reused buffer; stop early where the file ends."""
    buffer = memoryview(bytearray(min(end - begin, CHUNK_BYTES)))
    while begin < end:
        got = read_into(files, descriptor, buffer[: end - begin], begin)
        if got == 0:
            return
        yield buffer[:got]
        begin += got


def sync(files: CheckpointFiles, descriptor: int) -> None:
    """Sync a descriptor; a signal in between is no failure, everything else is.

    After any other error the pages may be marked clean although they never reached the disk, so that a second
    sync that succeeds proves nothing: whoever called gives up the file.
    """
    while True:
        try:
            return files.sync(descriptor)
        except InterruptedError:
            continue


def sync_folder(files: CheckpointFiles, folder: Path) -> None:
    """Put the names in a folder on the disk: without it a new or renamed entry can vanish."""
    if not os_specific.SYNCS_FOLDERS:
        return
    descriptor = files.open_folder(folder)
    try:
        sync(files, descriptor)
    finally:
        files.close(descriptor)


def write_file(files: CheckpointFiles, path: Path, pieces: list[memoryview]) -> None:
    """Create a file with these bytes, on the disk when this returns."""
    descriptor = files.create(path)
    try:
        for piece in pieces:
            write_all(files, descriptor, piece)
        sync(files, descriptor)
    finally:
        files.close(descriptor)


def remove_tree(files: CheckpointFiles, folder: Path) -> None:
    """Remove a folder and what is in it; links are removed, not followed."""
    for name in files.names(folder):
        path = folder / name
        if stat.S_ISDIR(files.status(path).st_mode):
            remove_tree(files, path)
        else:
            files.remove(path)
    files.remove_folder(folder)
