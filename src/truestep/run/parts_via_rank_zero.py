# SPDX-License-Identifier: Apache-2.0
"""Where rank 0 alone sees the run's directory: what each rank writes of a checkpoint is sent to it, and written there.

Files travel as they are written, one piece after another, in a group of their own beside the training. So rank 0 needs room for one
piece, and the checkpoint is the one that all would have written who see a common disk.
"""

import errno
import threading
from contextlib import suppress
from pathlib import Path

import torch
import torch.distributed as dist

from truestep.checkpoints.file_operations import CHUNK_BYTES, CheckpointFiles, sync, write_all
from truestep.engine.processes.world import Group, World
from truestep.run.process_group_setup import LIMIT, lazy_gloo_connections

_CREATE, _WRITE, _SYNC, _CLOSE, _END = range(5)
_FILE = -1  # the descriptor of the one file that a sender has open


def open_part_transfer_group(world: World) -> Group:
    """Return the group in which they travel, with its sockets open; all ranks ask for it together."""
    if world.carrying is None:
        with lazy_gloo_connections():
            group = dist.new_group(backend="gloo", timeout=LIMIT)
        world.meet("the sockets for checkpoints")
        # now, while all are here: connecting asks the store, which is no thread's alone
        number = torch.zeros(1, dtype=torch.int64)
        if world.rank:
            dist.send(number, group_dst=0, group=group)
        else:
            for rank in range(1, world.size):
                dist.recv(number, group_src=rank, group=group)
        world.carrying = group
    return world.carrying


class CheckpointPartSender(CheckpointFiles):
    """The files of a rank other than 0, which are written by sending them there, one at a time."""

    def __init__(self, group: Group) -> None:
        self._group = group

    def create(self, path: Path) -> int:
        """Begin a file."""
        self._send(_CREATE, memoryview(path.name.encode()))
        return _FILE

    def write(self, descriptor: int, data: memoryview) -> int:
        """Send a piece of it."""
        piece = data[:CHUNK_BYTES]
        self._send(_WRITE, piece)
        return len(piece)

    def write_back(self, descriptor: int, begin: int, size: int) -> None:
        """The disk is rank 0's, which sees to it."""

    def sync(self, descriptor: int) -> None:
        """Have rank 0 put the file on its disk; it tells nobody before that is done."""
        self._send(_SYNC)

    def close(self, descriptor: int) -> None:
        """End a file."""
        self._send(_CLOSE)

    def end(self) -> None:
        """Say that the part is over, whole or not."""
        with suppress(OSError):  # rank 0 is gone, and so is whoever would wait
            self._send(_END)

    def _send(self, kind: int, data: memoryview | None = None) -> None:
        size = 0 if data is None else len(data)
        try:
            dist.send(torch.tensor([kind, size]), group_dst=0, group=self._group)
            if data is not None and size:
                dist.send(_uint8_tensor_of_bytes(data), group_dst=0, group=self._group)
        except RuntimeError as error:
            raise OSError(errno.EPIPE, "rank 0, which writes it, can't be reached") from error


def _uint8_tensor_of_bytes(data: memoryview) -> torch.Tensor:
    return torch.frombuffer(bytearray(data) if data.readonly else data, dtype=torch.uint8)


class CheckpointPartReceiver:
    """Writes, on rank 0 and in a thread, what the other ranks send of a checkpoint."""

    def __init__(self, group: Group, size: int, files: CheckpointFiles | None = None) -> None:
        self._group, self._ranks = group, range(1, size)
        self._files = files or CheckpointFiles()
        self._thread: threading.Thread | None = None
        self._error: OSError | None = None
        self._is_cut = False

    def begin(self, folder: Path) -> None:
        """Take what is sent for a checkpoint; the one before is over, since all have sent theirs."""
        if self._thread is not None:
            self._thread.join()
        self._error = None
        # nobody waits at the process's end for a rank that sends no more
        self._thread = threading.Thread(
            target=self._receive_all_parts, args=(folder,), name="truestep-parts", daemon=True
        )
        self._thread.start()

    def is_done(self) -> bool:
        """Whether all is written; raises what a file failed with."""
        if self._error is not None:
            raise self._error
        return self._thread is not None and not self._thread.is_alive() and not self._is_cut

    def _receive_all_parts(self, folder: Path) -> None:
        buffer = torch.empty(CHUNK_BYTES, dtype=torch.uint8)
        for rank in self._ranks:
            try:
                self._receive_part_of_rank(rank, folder, buffer)
            except RuntimeError:  # a connection broke: whoever waits finds out whose
                # the others send on, so that they come to where they are told
                self._is_cut = True

    def _receive_part_of_rank(self, rank: int, folder: Path, buffer: torch.Tensor) -> None:
        """Write what a rank sends until it ends; where the disk fails, the rest is taken and thrown away."""
        head = torch.empty(2, dtype=torch.int64)
        part = _ReceivedPart(self._files, folder)
        while True:
            dist.recv(head, group_src=rank, group=self._group)
            kind, size = head.tolist()
            data = buffer[:size]
            if size:
                dist.recv(data, group_src=rank, group=self._group)
            if self._error is None and not self._is_cut:
                try:
                    part.take(kind, data.numpy().data)
                except OSError as error:
                    self._error = error
            if kind == _END:
                part.close()
                return


class _ReceivedPart:
    """The files of one rank; one is open at a time."""

    def __init__(self, files: CheckpointFiles, folder: Path) -> None:
        self._files, self._folder = files, folder
        self._open: int | None = None

    def take(self, kind: int, data: memoryview) -> None:
        """Do what was asked for."""
        if kind == _CREATE:
            # it comes from another process: a name and no path
            self._open = self._files.create(self._folder / Path(bytes(data).decode()).name)
        elif self._open is not None and kind == _WRITE:
            write_all(self._files, self._open, data)
        elif self._open is not None and kind == _SYNC:
            sync(self._files, self._open)
        elif kind == _CLOSE:
            self.close()

    def close(self) -> None:
        """Close what is open."""
        if self._open is not None:
            descriptor, self._open = self._open, None
            self._files.close(descriptor)
