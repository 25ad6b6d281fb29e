# SPDX-License-Identifier: Apache-2.0
"""One checkpoint on disk."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from truestep.checkpoints.file_operations import CheckpointFiles
from truestep.checkpoints.manifest import (
    CheckpointSummary,
    DamagedCheckpointError,
    Manifest,
    NewerCheckpointError,
)
from truestep.checkpoints.state_codec import decode_state, state_subtree
from truestep.checkpoints.tensor_selection import PartOf
from truestep.checkpoints.verify import read_manifest, verify_checkpoint
from truestep.core.errors import CheckpointError


@dataclass(frozen=True)
class PassedOver:
    """A checkpoint that was not used, and why: damaged, of a newer format, or sound but not wanted."""

    name: str
    reason: str
    damaged: bool = False
    newer: bool = False

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A checkpoint whose manifest is sound. Its tensors are read, and checked, by `load` and `verify`."""

    path: Path
    manifest: Manifest = field(repr=False)
    files: CheckpointFiles = field(repr=False)
    passed_over: tuple[PassedOver, ...] = ()

    @classmethod
    def open(cls, path: str | Path, files: CheckpointFiles | None = None) -> "Checkpoint":
        """Read the manifest in a checkpoint's folder; raises CheckpointError with the file and the reason."""
        path, files = Path(path), files or CheckpointFiles()
        try:
            return cls(path=path, manifest=read_manifest(files, path), files=files)
        except OSError as error:
            raise CheckpointError(f"The checkpoint {path} can't be read: {error.strerror}.") from error
        except (DamagedCheckpointError, NewerCheckpointError) as error:
            raise type(error)(f"The checkpoint {path} can't be used. {error}.") from error

    @property
    def name(self) -> str:
        """The name of its folder."""
        return self.path.name

    @property
    def summary(self) -> CheckpointSummary:
        """What it is: step, reason, health, metrics."""
        return self.manifest.summary

    @property
    def step(self) -> int:
        """The step at which it was saved."""
        return self.summary.step

    @property
    def metrics(self) -> dict[str, Any]:
        """The metrics it was saved with."""
        metrics: dict[str, Any] = decode_state({"dict": self.summary.metrics}, _refuse_tensor_node)
        return metrics

    @property
    def bytes(self) -> int:
        """Bytes of its tensors' files."""
        return sum(entry.bytes for entry in self.manifest.files.values())

    def value(self, *under: str | int) -> Any:
        """Return a value that is no tensor from the manifest alone: no other file is opened, whatever became of it."""
        return decode_state(state_subtree(self.manifest.state, under), _refuse_tensor_node)

    def verify(self) -> None:
        """Read every byte and raise CheckpointError unless all is as it was written; memory stays small."""
        with self._naming_checkpoint_in_errors():
            verify_checkpoint(self.files, self.path, self.manifest)

    def load(self, *under: str | int, part_of: PartOf | None = None) -> Any:
        """Return the state, on the CPU, or the part of it under the given keys.

        Of tensors that `part_of` wants a part of, that part alone is read into memory. Raises CheckpointError unless every byte of
        the files read is as it was written.
        """
        # imports torch, which listing checkpoints does without
        from truestep.checkpoints.load import load_state

        with self._naming_checkpoint_in_errors():
            return load_state(self.files, self.path, self.manifest, under, part_of)

    @contextmanager
    def _naming_checkpoint_in_errors(self) -> Iterator[None]:
        """Say which checkpoint it was that is damaged or can't be read."""
        try:
            yield
        except DamagedCheckpointError as error:
            raise DamagedCheckpointError(f"The checkpoint {self.path} is damaged. {error}.") from error
        except OSError as error:
            raise DamagedCheckpointError(f"The checkpoint {self.path} can't be read: {error}.") from error


def _refuse_tensor_node(node: dict[str, Any]) -> Any:
    raise ValueError(f"a number or text was expected, and there is the tensor {node['tensor']!r}")
