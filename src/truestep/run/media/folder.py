# SPDX-License-Identifier: Apache-2.0
"""`media/` in a run's directory: a folder a name, a file a step, and nothing that no line of metrics names."""

import hashlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from truestep.core.atomic_files import is_unfinished_file, read_regular_file, replacing_file
from truestep.core.errors import RunDirectoryError
from truestep.core.os_specific import is_reserved_name
from truestep.core.text_formatting import keyword_text
from truestep.report.media import MEDIA, MEDIA_SUFFIXES, MediaFileEntry
from truestep.report.metrics import read_metrics
from truestep.report.metrics_rollback import metrics_file_and_kept_copies
from truestep.run.media.kind import EncodedMedia

MAX_NAME = 100  # of the 255 bytes that file systems take: a name as %XX is three times as long


class LoggedMediaFile(NamedTuple):
    """What was written: enough for a tracker, `tracker.media(name, kind, path, step)`, and for the line of metrics."""

    name: str
    kind: str
    path: Path
    step: int
    line: MediaFileEntry


def write_media_files(directory: Path, step: int, media: Mapping[str, EncodedMedia]) -> list[LoggedMediaFile]:
    """Write each into its file under a run's directory; they are on the disk for good when this returns."""
    return [_write_media_file(directory, step, name, each) for name, each in media.items()]


def _write_media_file(directory: Path, step: int, name: str, media: EncodedMedia) -> LoggedMediaFile:
    folder = directory / MEDIA / media_folder_name(name)
    try:
        _make_media_folder(folder.parent)
        _make_media_folder(folder)
        path = _media_path(folder, step, media)
    except OSError as error:
        raise RunDirectoryError(
            f"run.log({keyword_text(name)}) "
            f"could not be written under {folder}: {error}. Make room there, or make it a folder that can be "
            "written to, and start the run again: it goes on from its last checkpoint."
        ) from error
    line = MediaFileEntry(kind=media.kind, file=path.relative_to(directory).as_posix(), note=media.note)
    return LoggedMediaFile(name, media.kind, path, step, line)


def _make_media_folder(folder: Path) -> None:
    if folder.is_symlink():  # a run's files are its own, and a link could lead anywhere
        raise OSError("it is a symbolic link")
    folder.mkdir(exist_ok=True)


def _media_path(folder: Path, step: int, media: EncodedMedia) -> Path:
    """Return the file that holds the content: one that has it already, or a new one."""
    for number in range(1, 10_000):
        path = folder / f"{step:08d}{f'-{number}' if number > 1 else ''}{media.suffix}"
        try:
            if read_regular_file(path) == media.content:
                return path
        except FileNotFoundError:
            with replacing_file(path) as file:
                file.write(media.content)
            return path
    raise OSError(f"10,000 of one name at step {step}")


def media_folder_name(name: str) -> str:
    """Return the folder of a name: letters, digits, `_`, `-` and inner dots as they are, all else as %XX of its UTF-8 bytes.

    The first letter of what Windows takes for a device, such as "aux", is written as %XX, too, and so is a dot at either end.
    """
    escaped = quote(name, safe="").replace("~", "%7E")
    if escaped.startswith(".") or is_reserved_name(escaped):
        escaped = f"%{ord(escaped[0]):02X}{escaped[1:]}"
    if escaped.endswith("."):
        escaped = f"{escaped[:-1]}%2E"
    if len(escaped) > MAX_NAME:
        escaped = f"{escaped[:MAX_NAME]}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"
    return escaped


def remove_unlisted_media(metrics: Path) -> None:
    """Remove the media that neither `metrics.jsonl` nor what is kept of it names: they belong to steps that were cut off."""
    folder = metrics.parent / MEDIA
    if folder.is_symlink() or not folder.is_dir():
        return
    listed = {path for file in metrics_file_and_kept_copies(metrics) for path in _files_in_metrics(file)}
    for path in folder.glob("*/*"):
        ours = path.suffix in MEDIA_SUFFIXES.values() or is_unfinished_file(path)
        if (
            ours
            and not path.parent.is_symlink()
            and path.relative_to(metrics.parent).as_posix() not in listed
        ):
            path.unlink(missing_ok=True)
            with suppress(OSError):  # something else is in it
                path.parent.rmdir()


def _files_in_metrics(metrics: Path) -> Iterable[str]:
    with suppress(FileNotFoundError):
        for line in read_metrics(metrics, only_media=True):
            yield from (each.file for each in line.media.values())
