# SPDX-License-Identifier: Apache-2.0
"""`metrics.jsonl`: one line for each time something was logged, written as the run goes and read back."""

import errno
import json
import logging
import math
import os
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import orjson

from truestep.core.atomic_files import open_regular_file
from truestep.core.errors import RunDirectoryError
from truestep.core.os_specific import read_at, sync_folder, write_at
from truestep.core.text_formatting import plural
from truestep.report.media import MediaFileEntry, decode_media, encode_media
from truestep.report.metrics_rollback import MetricsPrefixMark

logger = logging.getLogger(__name__)

FLUSH_SECONDS = 0.75  # and a quarter in which a run reads the lines that it has noted
FLUSH_BYTES = 64 * 1024
READ_BYTES = 1 << 20
MAX_LINE_BYTES = 16 << 20  # no line of metrics is so long; a damaged file may have no newline at all
MAX_STEP = 1 << 63  # columns of steps are int64

# names may be members of a StrEnum, which are other keys than text to orjson
_AS_LINES = orjson.OPT_NON_STR_KEYS | orjson.OPT_APPEND_NEWLINE
NOT_IN_JSON = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}

_CURES = {errno.ENOSPC: "Make room on the disk", errno.EDQUOT: "Make room in your quota"}
_OTHER_CURE = "See what keeps the file from being written (its owner, a disk that is read only)"


@dataclass(frozen=True, kw_only=True, slots=True)
class MetricsLine:
    """What was logged at one step."""

    step: int
    epoch: int
    elapsed_seconds: float
    values: Mapping[str, float]
    media: Mapping[str, MediaFileEntry] = field(default_factory=dict)


class MetricsFile:
    """Appends lines to a run's `metrics.jsonl`; what a crash tore off its end is removed first.

    Lines wait in memory for under a second or 64 KiB; `flush` puts them into the file. When the
    disk is full they go on waiting and are tried again; only `close` and a durable flush raise.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._next_flush = time.monotonic() + FLUSH_SECONDS
        self._failing = False
        # on the disk: a file that is synced may still have no name after a loss of power
        self._is_named = False
        self._open_and_repair()

    def _open_and_repair(self) -> None:
        try:
            self._file = open_regular_file(self.path, os.O_RDWR | os.O_CREAT)
        except FileNotFoundError as error:
            raise RunDirectoryError(
                f"{self.path} can't be made, since its folder is gone: was the run's directory removed or renamed? "
                "Put it back, and start the run again; it goes on from its newest checkpoint."
            ) from error
        self._end, self._checksum = _mark_of_whole_lines(self._file)
        os.ftruncate(self._file, self._end)

    def append(
        self,
        *,
        step: int,
        epoch: int,
        elapsed_seconds: float,
        values: Mapping[str, float],
        media: Mapping[str, MediaFileEntry] | None = None,
    ) -> None:
        """Add one line."""
        where = {"step": step, "epoch": epoch, "elapsed_seconds": elapsed_seconds}
        line = _encode_line(where, values, media or {})
        self._waiting.append(line)
        self._waiting_bytes += len(line)
        if self._waiting_bytes >= FLUSH_BYTES or time.monotonic() >= self._next_flush:
            self.flush()

    def flush(self, *, durable: bool = False) -> None:
        """Write the waiting lines; `durable`: so that they survive a power cut, or raise."""
        self._next_flush = time.monotonic() + FLUSH_SECONDS
        try:
            if durable and not self.path.exists():
                self._recreate_removed_file()
            self._seek_to_last_whole_line()
            self._write_all_or_nothing(b"".join(self._waiting))
            if durable:
                os.fsync(self._file)
                self._sync_parent_folder()
        except OSError as error:
            if durable:
                raise self._write_failure_error(error) from error
            if not self._failing:
                logger.warning(
                    "%s: %s; the lines wait in memory and are tried again", self.path, error.strerror
                )
            self._failing = True
            return
        self._waiting, self._waiting_bytes, self._failing = [], 0, False

    def _sync_parent_folder(self) -> None:
        if not self._is_named:
            sync_folder(self.path.parent)
            self._is_named = True

    def _recreate_removed_file(self) -> None:
        """Somebody removed the file; its lines can still be read, and go into a new one."""
        logger.warning(
            "%s was removed while the run trained; it is made again with all of its lines", self.path
        )
        removed, end = self._file, self._end
        made = open_regular_file(self.path, os.O_RDWR | os.O_CREAT)
        try:
            for start in range(0, end, READ_BYTES):
                _write_fully_at(made, read_at(removed, min(READ_BYTES, end - start), start), start)
        except OSError:
            os.close(made)
            self.path.unlink(missing_ok=True)
            raise
        # Only now: until the copy is whole, the removed file is the one that has the lines.
        self._file, self._is_named = made, False
        os.close(removed)

    def _seek_to_last_whole_line(self) -> None:
        """Somebody cut or wrote to the file: lines go on behind its last whole one, and no hole of NUL bytes comes to be."""
        self._reopen_replaced_file()
        size = os.fstat(self._file).st_size
        if size == self._end:
            return
        before, (self._end, self._checksum) = self._end, _mark_of_whole_lines(self._file)
        os.ftruncate(self._file, self._end)
        lost = "; what was logged before is missing from the run's history" if size < before else ""
        logger.warning(
            "%s was changed by another program while the run trained: it had %d bytes and has %d%s. The run goes on behind its "
            "last whole line; copy the file instead of cutting it",
            self.path,
            before,
            size,
            lost,
        )

    def _reopen_replaced_file(self) -> None:
        """Another file has the name, as an editor or `sed -i` leaves it: what is written to the old one is seen by nobody."""
        with suppress(FileNotFoundError):  # it was removed: a durable flush makes it again
            if os.path.samestat(self.path.lstat(), os.fstat(self._file)):
                return
            old, self._file = self._file, open_regular_file(self.path, os.O_RDWR)
            self._is_named = False
            os.close(old)

    def _write_all_or_nothing(self, text: bytes) -> None:
        """Write all of it or nothing: a full disk takes the first bytes of a line and refuses the rest."""
        try:
            # At a place, not appended: what a full disk took of a line is written over by the next attempt.
            _write_fully_at(self._file, text, self._end)
        except OSError:
            os.ftruncate(self._file, self._end)
            raise
        self._end += len(text)
        self._checksum = zlib.crc32(text, self._checksum)

    def _write_failure_error(self, error: OSError) -> RunDirectoryError:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            return RunDirectoryError(
                f"{str(self.path.parent)!r}, the folder of this run, was removed or moved while the run was at work, with its "
                "checkpoints. Put it back and start again: the run goes on from its last checkpoint. If it is lost, the run begins "
                "anew."
            )
        return RunDirectoryError(
            f"{self.path}: {error.strerror}, so {plural(len(self._waiting), 'line')} of metrics could not be written. "
            f"The run's history would have a hole. {_CURES.get(error.errno or 0, _OTHER_CURE)} and resume the run."
        )

    @property
    def mark(self) -> MetricsPrefixMark:
        """Everything written so far; after `flush` that is every line."""
        return MetricsPrefixMark(self._end, self._checksum)

    def close(self) -> None:
        """Write what waits and close the file; more calls do nothing."""
        if self._file < 0:
            return
        try:
            self.flush(durable=True)
        finally:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _write_fully_at(file: int, text: bytes, place: int) -> None:
    """Write all of it, however little each call takes."""
    written = 0
    while written < len(text):
        written += write_at(file, text[written:], place + written)


def read_metrics(path: Path, *, only_media: bool = False) -> Iterator[MetricsLine]:
    """Yield the lines of a `metrics.jsonl` in their order, without those that a crash or a disk spoiled.

    With `only_media` lines that can name none are passed over unread.
    """
    for raw in raw_metrics_lines(path):
        if raw.endswith(b"\n") and (not only_media or b'"media"' in raw):
            line = decode_metrics_line(raw)
            if line is not None:
                yield line


def _encode_line(
    where: Mapping[str, Any], values: Mapping[str, float], media: Mapping[str, MediaFileEntry]
) -> bytes:
    """Return a line; NaN and the infinities, which JSON lacks, become strings."""
    # one of them makes the sum such a number, and orjson would write null; so does a sum beyond float64, which costs time alone
    written = (
        values
        if math.isfinite(sum(values.values()))
        else {name: _number_or_json_text(each) for name, each in values.items()}
    )
    line = {**where, "values": written}
    if media:
        line["media"] = encode_media(media)
    return orjson.dumps(line, option=_AS_LINES)


def _number_or_json_text(number: float) -> float | str:
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def decode_metrics_line(raw: bytes) -> MetricsLine | None:
    """Return a line, or None for one that was not written so."""
    try:
        line = json.loads(raw)
        values = {
            name: NOT_IN_JSON[value] if isinstance(value, str) else float(value)
            for name, value in line["values"].items()
        }
        step, epoch, elapsed = int(line["step"]), int(line["epoch"]), float(line["elapsed_seconds"])
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None
    if not (
        0 <= step < MAX_STEP
        and 0 <= epoch < MAX_STEP
        and math.isfinite(elapsed)
        and all(map(is_metric_name, values))
    ):
        return None
    media = decode_media(line.get("media"))
    return MetricsLine(step=step, epoch=epoch, elapsed_seconds=elapsed, values=values, media=media)


def is_metric_name(text: str) -> bool:
    """Whether a metric can be called this: what can be shown on a terminal and a page, and written in UTF-8."""
    return bool(text) and text.isprintable()


def raw_metrics_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a regular file with their ends, which the last may lack; one too long for a line of metrics is empty."""
    with os.fdopen(open_regular_file(path), "rb", READ_BYTES) as file:
        is_too_long = False
        while part := file.readline(MAX_LINE_BYTES):
            is_whole = part.endswith(b"\n") or len(part) < MAX_LINE_BYTES
            if is_whole:
                yield b"\n" if is_too_long else part
            is_too_long = not is_whole
        if is_too_long:
            yield b"\n"


def _mark_of_whole_lines(file: int) -> MetricsPrefixMark:
    """Return everything up to the last newline."""
    end = checksum = position = so_far = 0
    while chunk := read_at(file, READ_BYTES, position):
        position += len(chunk)
        newline = chunk.rfind(b"\n") + 1
        if newline:
            end, checksum = position - len(chunk) + newline, zlib.crc32(chunk[:newline], so_far)
            so_far = checksum
        so_far = zlib.crc32(chunk[newline:], so_far)
    return MetricsPrefixMark(end, checksum)
