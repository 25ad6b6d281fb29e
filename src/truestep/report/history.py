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

from truestep.core.files import open_regular_file, read_regular_file, replacing_file


class MetricsMark(NamedTuple):
    """The first bytes of a file: how many, and their CRC-32."""

    position: int
    checksum: int

    def is_in(self, content: bytes) -> bool:
        """Whether `content` begins with them."""
        return (
            len(content) >= self.position
            and zlib.crc32(memoryview(content)[: self.position]) == self.checksum
        )


NOTHING = MetricsMark(0, 0)


def cut_back_metrics(path: Path, mark: MetricsMark, others: Sequence[MetricsMark] = ()) -> bool:
    """Let the file end after `mark`, and keep what any of the `others` needs; False where marked lines were changed or lost."""
    kept = {file: read_regular_file(file) for file in _older_files(path)}
    current = _content(path)
    # By checksum, not by name: which of the files a checkpoint was saved beside is written nowhere.
    source = next((content for content in (current, *kept.values()) if mark.is_in(content)), None)
    found = source is not None
    if source is None:
        source = current
    wanted = source[: mark.position]
    needed = [other for other in others if not other.is_in(wanted)]
    if any(other.is_in(current) and not _in_any(other, kept.values()) for other in needed):
        _write(_free(path, kept), current)  # and is safe before anything is cut off
    if source is current:
        if len(current) > mark.position:
            _truncate(path, mark.position)
    else:
        _write(path, wanted)
    if kept:
        forget_kept_metrics(path, others)
    return found


def forget_kept_metrics(path: Path, needed: Sequence[MetricsMark]) -> None:
    """Remove what was kept of `path` and none of the `needed` is found in alone."""
    current = _content(path)
    for file in _older_files(path):
        content = read_regular_file(file)
        if not any(mark.is_in(content) and not mark.is_in(current) for mark in needed):
            file.unlink()


def metrics_histories(path: Path) -> list[Path]:
    """Return the file and what is kept beside it."""
    return [path, *_older_files(path)]


def is_kept_metrics_file(path: Path) -> bool:
    """Whether anything of `path` is kept beside it."""
    return bool(_older_files(path))


def _content(path: Path) -> bytes:
    try:
        return read_regular_file(path)
    except FileNotFoundError:
        return b""


def _older_files(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f".{path.stem}-[0-9]*{path.suffix}"))


def _free(path: Path, kept: Iterable[Path]) -> Path:
    taken = {file.name for file in kept}
    names = (f".{path.stem}-{number}{path.suffix}" for number in range(len(taken) + 1))
    return path.with_name(next(name for name in names if name not in taken))


def _in_any(mark: MetricsMark, contents: Iterable[bytes]) -> bool:
    return any(mark.is_in(content) for content in contents)


def _write(path: Path, content: bytes) -> None:
    with replacing_file(path) as file:
        file.write(content)


def _truncate(path: Path, position: int) -> None:
    with os.fdopen(open_regular_file(path, os.O_RDWR), "r+b") as file:
        file.truncate(position)
        os.fsync(file.fileno())
