# SPDX-License-Identifier: Apache-2.0
"""The one exception to "nobody but the holder of the lock writes": the parts of a state that is divided among processes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from truestep.checkpoints.background_writer import BackgroundCheckpointWriter
from truestep.checkpoints.checkpoint_commit import write_images
from truestep.checkpoints.concurrent_copy import CopyAbandonedError
from truestep.checkpoints.copy_memory_check import CopyMemoryChecker, processes_on_this_machine
from truestep.checkpoints.file_operations import CheckpointFiles
from truestep.checkpoints.part_merging import write_part_note
from truestep.checkpoints.prepare import CheckpointPreparer, PreparedCheckpoint
from truestep.checkpoints.snapshot import CheckpointStagingBuffers
from truestep.core.garbage_collection import pause_garbage_collector


class CheckpointPartWriter:
    """Writes what one process has of a state into a folder that another one, which holds the lock, makes and publishes.

    `tell` is called when the part is on the disk, with None, or with why it could not be written. As with the store, the tensors
    are copied and a thread does the rest, unless `background=False`.
    """

    def __init__(
        self,
        rank: int,
        *,
        tell: Callable[[Path, str | None], None],
        background: bool = True,
        files: CheckpointFiles | None = None,
    ) -> None:
        self._rank, self._tell, self._background = rank, tell, background
        self._files = files or CheckpointFiles()
        room = CopyMemoryChecker(processes_on_this_machine())
        self._preparing = CheckpointPreparer(
            CheckpointStagingBuffers(room) if background else None, rank=rank
        )
        self._writer = BackgroundCheckpointWriter()

    def save(self, folder: Path, state: Any) -> None:
        """Write the tensors and pieces of tensors of a state; one part is in flight at a time."""
        self._writer.wait()
        prepared = self._preparing.prepared(state, may_share=self._background)
        if self._background:
            prepared.copying.share(self._writer.start, lambda: self._write_part_and_note(folder, prepared))
        else:
            self._write_part_and_note(folder, prepared)

    def _write_part_and_note(self, folder: Path, prepared: PreparedCheckpoint) -> None:
        try:
            entries = write_images(self._files, folder, prepared.images)
            with pause_garbage_collector():
                write_part_note(self._files, folder, self._rank, entries, prepared.layout.columns)
        except OSError as error:  # whoever publishes raises it: one error on all processes
            self._tell(folder, str(error))
        except CopyAbandonedError:
            self._tell(folder, "it was interrupted while the tensors were copied")
        else:
            self._tell(folder, None)

    def close(self) -> None:
        """Finish the part in flight."""
        self._writer.close()
