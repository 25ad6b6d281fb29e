# SPDX-License-Identifier: Apache-2.0
"""Which lines of `metrics.jsonl` a checkpoint was saved after, and bringing the file back to them.

A run that died three times from its newest checkpoint goes on from an older one, and may yet have to take the newer one
again. So what is cut off is kept beside the file, hidden, for as long as a checkpoint needs it.
"""

import os
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from truestep.core.atomic_files import open_regular_file, read_regular_file, replacing_file


class MetricsPrefixMark(NamedTuple):
    """The first bytes of a file: how many, and their CRC-32."""

    position: int
    checksum: int

    def is_in(self, content: bytes) -> bool:
        """Whether `content` begins with them."""
        return (
            len(content) >= self.position
            and zlib.crc32(memoryview(content)[: self.position]) == self.checksum
        )


NOTHING = MetricsPrefixMark(0, 0)


def truncate_metrics_to_mark(
    path: Path, mark: MetricsPrefixMark, others: Sequence[MetricsPrefixMark] = ()
) -> bool:
    """Let the file end after `mark`, and keep what any of the `others` needs; False where marked lines were changed or lost."""
    kept = {file: read_regular_file(file) for file in _kept_metrics_copies(path)}
    current = _read_or_empty(path)
    # By checksum, not by name: which of the files a checkpoint was saved beside is written nowhere.
    source = next((content for content in (current, *kept.values()) if mark.is_in(content)), None)
    found = source is not None
    if source is None:
        source = current
    wanted = source[: mark.position]
    needed = [other for other in others if not other.is_in(wanted)]
    if any(other.is_in(current) and not _is_prefix_of_any(other, kept.values()) for other in needed):
        _write_atomically(_unused_copy_path(path, kept), current)  # and is safe before anything is cut off
    if source is current:
        if len(current) > mark.position:
            _truncate_and_sync(path, mark.position)
    else:
        _write_atomically(path, wanted)
    if kept:
        remove_unneeded_metrics_copies(path, others)
    return found


def remove_unneeded_metrics_copies(path: Path, needed: Sequence[MetricsPrefixMark]) -> None:
    """Remove what was kept of `path` and none of the `needed` is found in alone."""
    current = _read_or_empty(path)
    for file in _kept_metrics_copies(path):
        content = read_regular_file(file)
        if not any(mark.is_in(content) and not mark.is_in(current) for mark in needed):
            file.unlink()


def metrics_file_and_kept_copies(path: Path) -> list[Path]:
    """Return the file and what is kept beside it."""
    return [path, *_kept_metrics_copies(path)]


def is_kept_metrics_file(path: Path) -> bool:
    """Whether anything of `path` is kept beside it."""
    return bool(_kept_metrics_copies(path))


def _read_or_empty(path: Path) -> bytes:
    try:
        return read_regular_file(path)
    except FileNotFoundError:
        return b""


def _kept_metrics_copies(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f".{path.stem}-[0-9]*{path.suffix}"))


def _unused_copy_path(path: Path, kept: Iterable[Path]) -> Path:
    taken = {file.name for file in kept}
    names = (f".{path.stem}-{number}{path.suffix}" for number in range(len(taken) + 1))
    return path.with_name(next(name for name in names if name not in taken))


def _is_prefix_of_any(mark: MetricsPrefixMark, contents: Iterable[bytes]) -> bool:
    return any(mark.is_in(content) for content in contents)


def _write_atomically(path: Path, content: bytes) -> None:
    with replacing_file(path) as file:
        file.write(content)


def _truncate_and_sync(path: Path, position: int) -> None:
    with os.fdopen(open_regular_file(path, os.O_RDWR), "r+b") as file:
        file.truncate(position)
        os.fsync(file.fileno())
